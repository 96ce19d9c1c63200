package configs

import (
	"runtime"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeletconfigv1beta1 "k8s.io/kubelet/config/v1beta1"
)

// APIVersion and Kind of berth's own document.
const (
	BerthAPIVersion = "berth.dev/v1alpha1"
	BerthKind       = "BerthConfiguration"
)

// BerthConfiguration holds the settings the kubelet does not have. It is a document of its own, so that a stock
// KubeletConfiguration needs no change.
type BerthConfiguration struct {
	metav1.TypeMeta `json:",inline"`

	// Socket is the agent's local API socket, absolute. Default /run/berth/berth.sock.
	Socket string `json:"socket,omitempty"`
	// SocketGroup may open the socket, besides root. Default berth; a group that does not exist leaves root alone.
	SocketGroup string `json:"socketGroup,omitempty"`
	// Runtime chooses how containers are run. Default auto.
	Runtime RuntimeKind `json:"runtime,omitempty"`
	// Sandbox says how pod sandboxes are made.
	Sandbox SandboxConfiguration `json:"sandbox,omitempty"`
	// MaxParallelPodStarts bounds how many pods start at once. Default four times the cores, at least 8 and at most 16.
	MaxParallelPodStarts int32 `json:"maxParallelPodStarts,omitempty"`
	// ImagesDir holds image archives (*.tar) imported at start. Default /var/lib/berth/images.
	ImagesDir string `json:"imagesDir,omitempty"`
	// PinnedImages are kept by whoever removes unused images (containerd from 1.7): images as pods name them, or patterns of full names in which * and ? stand
	// for anything but a slash.
	PinnedImages []string `json:"pinnedImages,omitempty"`
	// ImagePullStallTimeout is how long nothing may come from a registry before a pull is given up, to be tried again. Default 2m.
	ImagePullStallTimeout metav1.Duration `json:"imagePullStallTimeout,omitempty"`
	// ContainerLogsDir holds the links POD_NAMESPACE_CONTAINER-ID.log that log shippers read. Default /var/log/containers.
	ContainerLogsDir string `json:"containerLogsDir,omitempty"`
	// Logs bounds what container logs take of the disk.
	Logs LogsConfiguration `json:"logs,omitempty"`
	// CrashLoopBackOff says how long containers that end over and over wait.
	CrashLoopBackOff CrashLoopBackOffConfiguration `json:"crashLoopBackOff,omitempty"`
	// ResizeStaticPods has an edit of a manifest that changes only amounts of cpu and memory resize the running pod (KEP-1287), where a kubelet replaces a static
	// pod. Default true.
	ResizeStaticPods *bool `json:"resizeStaticPods,omitempty"`
	// RunLastKnownPods has a node of a cluster that starts without its API server make pods anew that it had before, although they may have been deleted or made
	// elsewhere meanwhile. Default false: only what still runs goes on running until the API server has been read.
	RunLastKnownPods bool `json:"runLastKnownPods,omitempty"`
	// CNI says where network configs and plugins are.
	CNI CNIConfiguration `json:"cni,omitempty"`
	// PodSecurity is the Pod Security Standard that pods are held to at their admission. Default privileged, which allows all.
	PodSecurity PodSecurityLevel `json:"podSecurity,omitempty"`
	// RelistPeriod is how often the runtime is listed in full, should events have been lost. Default 30s.
	RelistPeriod metav1.Duration `json:"relistPeriod,omitempty"`
}

// PodSecurityLevel is one of the Pod Security Standards (https://kubernetes.io/docs/concepts/security/pod-security-standards/).
type PodSecurityLevel string

// The levels.
const (
	// PodSecurityPrivileged allows all: whoever writes manifests is root on the node.
	PodSecurityPrivileged PodSecurityLevel = "privileged"
	// PodSecurityBaseline refuses what is known to reach the node: host namespaces and paths, privileged containers and the like.
	PodSecurityBaseline PodSecurityLevel = "baseline"
	// PodSecurityRestricted also refuses what is not locked down: root, capabilities, containers without a seccomp profile.
	PodSecurityRestricted PodSecurityLevel = "restricted"
)

// RuntimeKind chooses the implementation that runs containers.
type RuntimeKind string

// The runtime kinds.
const (
	// RuntimeAuto takes the CRI socket where it answers, else the native runtime.
	RuntimeAuto RuntimeKind = "auto"
	// RuntimeRemote uses the CRI socket of containerRuntimeEndpoint.
	RuntimeRemote RuntimeKind = "remote"
	// RuntimeNative drives containerd directly, without its CRI plugin.
	RuntimeNative RuntimeKind = "native"
)

// SandboxConfiguration says how pod sandboxes are made.
type SandboxConfiguration struct {
	// Pause says whether a sandbox has a pause process. Default auto. Only the native runtime can do without.
	Pause PauseMode `json:"pause,omitempty"`
}

// PauseMode says when a sandbox has a pause process.
type PauseMode string

// The pause modes.
const (
	// PauseAuto runs a pause process only for pods that need one (a shared PID namespace).
	PauseAuto PauseMode = "auto"
	// PauseAlways runs one in every pod.
	PauseAlways PauseMode = "always"
	// PauseNever runs none; pods that need one are rejected.
	PauseNever PauseMode = "never"
)

// CNIConfiguration says where network configs and plugins are.
type CNIConfiguration struct {
	// ConfDir holds network configs. Default /etc/cni/net.d.
	ConfDir string `json:"confDir,omitempty"`
	// BinDirs are searched for plugins, in order. Default /opt/cni/bin, /usr/lib/cni.
	BinDirs []string `json:"binDirs,omitempty"`
}

// LogsConfiguration bounds what container logs take of the disk, beyond what containerLogMaxSize and containerLogMaxFiles say of one log. With a negative
// containerLogMaxSize, which leaves logs alone, it bounds nothing.
type LogsConfiguration struct {
	// MaxContainerSize is the most that all log files of one container take, rotated ones and those of its earlier instances included, as a quantity.
	// A log is rotated when it has half of that, even if containerLogMaxSize is more. Default twice containerLogMaxSize times containerLogMaxFiles: what the
	// running instance and the one before may have.
	MaxContainerSize string `json:"maxContainerSize,omitempty"`
	// MaxNodeSize is the most that the logs of all pods take, as a quantity or in percent of the file system of podLogsDir. Default 20%.
	MaxNodeSize string `json:"maxNodeSize,omitempty"`
}

// setDefaults fills in what the user left out. The KubeletConfiguration has its defaults already; one that is wrong is told of by its own validation.
func (l *LogsConfiguration) setDefaults(k *kubeletconfigv1beta1.KubeletConfiguration) {
	size, err := resource.ParseQuantity(k.ContainerLogMaxSize)
	if err == nil && size.Sign() > 0 {
		size.Mul(2 * int64(*k.ContainerLogMaxFiles))
		orValue(&l.MaxContainerSize, size.String())
	}
	orValue(&l.MaxContainerSize, "100Mi")
	orValue(&l.MaxNodeSize, "20%")
}

// setDefaults fills in what the user left out.
func (b *BerthConfiguration) setDefaults() {
	b.APIVersion, b.Kind = BerthAPIVersion, BerthKind
	orValue(&b.Socket, "/run/berth/berth.sock")
	orValue(&b.SocketGroup, "berth")
	orValue(&b.Runtime, RuntimeAuto)
	orValue(&b.Sandbox.Pause, PauseAuto)
	orValue(&b.MaxParallelPodStarts, defaultParallelPodStarts(runtime.NumCPU()))
	orValue(&b.ImagesDir, "/var/lib/berth/images")
	orValue(&b.ImagePullStallTimeout.Duration, 2*time.Minute)
	orValue(&b.ContainerLogsDir, "/var/log/containers")
	orPointer(&b.ResizeStaticPods, true)
	orValue(&b.CNI.ConfDir, "/etc/cni/net.d")
	if len(b.CNI.BinDirs) == 0 {
		b.CNI.BinDirs = []string{"/opt/cni/bin", "/usr/lib/cni"}
	}
	orValue(&b.PodSecurity, PodSecurityPrivileged)
	orValue(&b.RelistPeriod.Duration, 30*time.Second)
}

// defaultParallelPodStarts is four times the cores, within 8 and 16: measured on 2 cores, containerd starts most pods per second at 8 to 16 at a
// time (test/bench/results.md) and a third fewer at 50.
func defaultParallelPodStarts(cores int) int32 {
	return int32(min(max(4*cores, 8), 16))
}
