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

// BerthConfiguration has the settings that the kubelet does not have. It is a separate document, so
// that a stock KubeletConfiguration needs no change.
type BerthConfiguration struct {
	metav1.TypeMeta `json:",inline"`

	// Socket is the agent's local API socket, absolute. Default /run/berth/berth.sock.
	Socket string `json:"socket,omitempty"`
	// SocketGroup may open the socket, besides root. Default berth; if the group does not exist,
	// only root may open it.
	SocketGroup string `json:"socketGroup,omitempty"`
	// Runtime chooses how containers are run. Default auto.
	Runtime RuntimeKind `json:"runtime,omitempty"`
	// Containerd says which containerd the native runtime uses, and how.
	Containerd ContainerdConfiguration `json:"containerd,omitempty"`
	// CRISocket is a socket on which the agent serves the CRI of its runtime, for crictl. Only root
	// may open it. Default none.
	CRISocket string `json:"criSocket,omitempty"`
	// Sandbox says how pod sandboxes are made.
	Sandbox SandboxConfiguration `json:"sandbox,omitempty"`
	// MaxParallelPodStarts limits how many pods start at the same time. Default four times the
	// cores, at least 8 and at most 16.
	MaxParallelPodStarts int32 `json:"maxParallelPodStarts,omitempty"`
	// ImagesDir has image archives (*.tar) that are imported when they come. Default
	// /var/lib/berth/images.
	ImagesDir string `json:"imagesDir,omitempty"`
	// PinnedImages are not removed for being unused: by the agent, and on containerd from 1.7 by
	// others. Each is an image as pods name it, or a pattern of full names in which * and ? stand
	// for anything but a slash.
	PinnedImages []string `json:"pinnedImages,omitempty"`
	// ImagePullStallTimeout is how long a registry may send nothing before the pull is stopped and
	// tried again. Default 2m.
	ImagePullStallTimeout metav1.Duration `json:"imagePullStallTimeout,omitempty"`
	// ContainerLogsDir has the links POD_NAMESPACE_CONTAINER-ID.log that log shippers read. Default
	// /var/log/containers.
	ContainerLogsDir string `json:"containerLogsDir,omitempty"`
	// Logs limits how much of the disk container logs take.
	Logs LogsConfiguration `json:"logs,omitempty"`
	// CrashLoopBackOff says how long containers that end again and again wait.
	CrashLoopBackOff CrashLoopBackOffConfiguration `json:"crashLoopBackOff,omitempty"`
	// ResizeStaticPods resizes a running static pod if an edit of its manifest changes only amounts
	// of cpu and memory (KEP-1287). A kubelet replaces such a pod. Default true.
	ResizeStaticPods *bool `json:"resizeStaticPods,omitempty"`
	// RunLastKnownPods lets a node of a cluster that starts without its API server restart the pods
	// that it had before, although the pods may have been deleted or made elsewhere since then.
	// Default false: only pods that still run continue until the API server has been read.
	RunLastKnownPods bool `json:"runLastKnownPods,omitempty"`
	// CNI says where network configs and plugins are.
	CNI CNIConfiguration `json:"cni,omitempty"`
	// NRI lets plugins of the Node Resource Interface change containers.
	NRI NRIConfiguration `json:"nri,omitempty"`
	// PodSecurity is the Pod Security Standard that pods must meet at their admission. Default
	// privileged, which allows all.
	PodSecurity PodSecurityLevel `json:"podSecurity,omitempty"`
	// InsecureManifests takes manifests that everybody may write to, and those in a directory that
	// everybody may write to: every user of the machine is root then. Default false: they are
	// refused.
	InsecureManifests bool `json:"insecureManifests,omitempty"`
	// RuntimeAnnotations are the annotations of pods that the runtime gets, as patterns of their
	// keys in which * and ? stand for anything but a slash. Runtimes take annotations as orders.
	// Default those of Kubernetes itself, Kata Containers, gVisor and NRI plugins. A kubelet passes
	// on all of them: ["*", "*/*"].
	RuntimeAnnotations []string `json:"runtimeAnnotations,omitempty"`
	// DenyLinkLocal refuses HTTP, TCP and gRPC probes and HTTP hooks of pods to link-local
	// addresses, such as the metadata service of a cloud. Default false, because addresses of local
	// DNS caches are link-local, too.
	DenyLinkLocal bool `json:"denyLinkLocal,omitempty"`
	// RelistPeriod is how often the runtime is listed in full, in case events were lost. Default
	// 30s.
	RelistPeriod metav1.Duration `json:"relistPeriod,omitempty"`
	// History limits the events and timelines of pods that are kept on the disk.
	History HistoryConfiguration `json:"history,omitempty"`
}

// HistoryConfiguration limits what "berth events --since" and "berth why --previous" can show.
type HistoryConfiguration struct {
	// MaxSize is the limit for all files of the history, as a quantity. Default 16Mi.
	MaxSize string `json:"maxSize,omitempty"`
	// MaxAge is how long the history goes back. Default 168h, which is a week.
	MaxAge metav1.Duration `json:"maxAge,omitempty"`
}

// PodSecurityLevel is one of the Pod Security Standards
// (https://kubernetes.io/docs/concepts/security/pod-security-standards/).
type PodSecurityLevel string

// The levels.
const (
	// PodSecurityPrivileged allows everything: whoever writes manifests is root on the node.
	PodSecurityPrivileged PodSecurityLevel = "privileged"
	// PodSecurityBaseline refuses known ways to the node: host namespaces and paths, privileged
	// containers and the like.
	PodSecurityBaseline PodSecurityLevel = "baseline"
	// PodSecurityRestricted also requires hardening: it refuses root, capabilities, and containers
	// without a seccomp profile.
	PodSecurityRestricted PodSecurityLevel = "restricted"
)

// RuntimeKind selects the implementation that runs containers.
type RuntimeKind string

// The runtime kinds.
const (
	// RuntimeAuto uses the CRI socket if it answers, or else the native runtime.
	RuntimeAuto RuntimeKind = "auto"
	// RuntimeRemote uses the CRI socket of containerRuntimeEndpoint.
	RuntimeRemote RuntimeKind = "remote"
	// RuntimeNative drives containerd directly, without its CRI plugin.
	RuntimeNative RuntimeKind = "native"
)

// ContainerdConfiguration says which containerd the native runtime uses, and how.
type ContainerdConfiguration struct {
	// Address is containerd's socket, as an absolute path or unix:///path. Default the socket of
	// containerRuntimeEndpoint.
	Address string `json:"address,omitempty"`
	// Namespace is the containerd namespace of the pods and their images. Nobody else may use it:
	// what the agent does not know there, it removes. Default berth for the root directory
	// /var/lib/kubelet, and a name of its own for any other.
	Namespace string `json:"namespace,omitempty"`
	// RegistryConfigDir has a folder with a hosts.toml for each registry. Default
	// /etc/containerd/certs.d.
	RegistryConfigDir string `json:"registryConfigDir,omitempty"`
	// DefaultRuntime is the OCI runtime of pods without a RuntimeClass. Default runc.
	DefaultRuntime string `json:"defaultRuntime,omitempty"`
	// Runtimes are the OCI runtimes by name, the handlers of RuntimeClasses. Default runc alone.
	Runtimes map[string]OCIRuntime `json:"runtimes,omitempty"`
}

// OCIRuntime is a program that runs containers, called by containerd's runc shim.
type OCIRuntime struct {
	// Binary is the program, by name or path. Default its key in runtimes.
	Binary string `json:"binary,omitempty"`
	// Root is the program's directory of states. Default the shim's own.
	Root string `json:"root,omitempty"`
}

// SandboxConfiguration says how pod sandboxes are made.
type SandboxConfiguration struct {
	// Image is the image of pause processes. Default berth.local/pause:v1, which the package puts
	// into imagesDir. Only the native runtime uses it.
	Image string `json:"image,omitempty"`
	// Pause says whether a sandbox has a pause process. Default auto. Only the native runtime works
	// without one.
	Pause PauseMode `json:"pause,omitempty"`
}

// PauseMode says when a sandbox has a pause process.
type PauseMode string

// The pause modes.
const (
	// PauseAuto runs a pause process only for pods that need one (a shared PID namespace).
	PauseAuto PauseMode = "auto"
	// PauseAlways runs a pause process in every pod.
	PauseAlways PauseMode = "always"
	// PauseNever runs no pause process; pods that need one are rejected.
	PauseNever PauseMode = "never"
)

// CNIConfiguration says where network configs and plugins are.
type CNIConfiguration struct {
	// ConfDir has network configs. Default /etc/cni/net.d.
	ConfDir string `json:"confDir,omitempty"`
	// BinDirs are searched for plugins, in order. Default /opt/cni/bin, /usr/lib/cni.
	BinDirs []string `json:"binDirs,omitempty"`
}

// NRIConfiguration says which plugins of the Node Resource Interface
// (https://github.com/containerd/nri) see pods and change how their containers run. They are as
// powerful as root. Only the native runtime uses them: containerd's CRI plugin has a configuration
// of its own.
type NRIConfiguration struct {
	// Enabled starts the plugins of pluginDir, and lets others connect. Default false.
	Enabled bool `json:"enabled,omitempty"`
	// Socket is where plugins connect. Only root may open it. Default /run/berth/nri.sock: the
	// place that plugins try first, /var/run/nri/nri.sock, is containerd's own.
	Socket string `json:"socket,omitempty"`
	// PluginDir has the plugins that are started with the agent, each named INDEX-NAME. Default
	// /etc/berth/nri/plugins: containerd starts those in /opt/nri/plugins.
	PluginDir string `json:"pluginDir,omitempty"`
	// ConfigDir has the plugins' own configurations, each named as its plugin with .conf. Default
	// /etc/nri/conf.d.
	ConfigDir string `json:"configDir,omitempty"`
}

// LogsConfiguration limits how much of the disk container logs take, in addition to the limits of a
// single log (containerLogMaxSize and containerLogMaxFiles). With a negative containerLogMaxSize,
// which turns rotation off, there are no limits.
type LogsConfiguration struct {
	// MaxContainerSize is the limit for all log files of one container, including rotated ones and
	// those of its earlier instances, as a quantity. A log is rotated when it has half of that,
	// even if containerLogMaxSize is more. Default twice containerLogMaxSize times
	// containerLogMaxFiles, for the running instance and the one before.
	MaxContainerSize string `json:"maxContainerSize,omitempty"`
	// MaxNodeSize is the limit for the logs of all pods, as a quantity or in percent of the file
	// system of podLogsDir. Default 20%.
	MaxNodeSize string `json:"maxNodeSize,omitempty"`
}

// setDefaults sets the fields that the user left out. The KubeletConfiguration k has its defaults
// already; its own validation reports its wrong values.
func (l *LogsConfiguration) setDefaults(k *kubeletconfigv1beta1.KubeletConfiguration) {
	size, err := resource.ParseQuantity(k.ContainerLogMaxSize)
	if err == nil && size.Sign() > 0 {
		size.Mul(2 * int64(*k.ContainerLogMaxFiles))
		orValue(&l.MaxContainerSize, size.String())
	}
	orValue(&l.MaxContainerSize, "100Mi")
	orValue(&l.MaxNodeSize, "20%")
}

// setDefaults sets the fields that the user left out.
func (b *BerthConfiguration) setDefaults() {
	b.APIVersion, b.Kind = BerthAPIVersion, BerthKind
	orValue(&b.Socket, "/run/berth/berth.sock")
	orValue(&b.SocketGroup, "berth")
	orValue(&b.Runtime, RuntimeAuto)
	orValue(&b.Containerd.RegistryConfigDir, "/etc/containerd/certs.d")
	orValue(&b.Containerd.DefaultRuntime, "runc")
	if len(b.Containerd.Runtimes) == 0 {
		b.Containerd.Runtimes = map[string]OCIRuntime{"runc": {}}
	}
	orValue(&b.Sandbox.Image, "berth.local/pause:v1")
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
	orValue(&b.NRI.Socket, "/run/berth/nri.sock")
	orValue(&b.NRI.PluginDir, "/etc/berth/nri/plugins")
	orValue(&b.NRI.ConfigDir, "/etc/nri/conf.d")
	orValue(&b.PodSecurity, PodSecurityPrivileged)
	if b.RuntimeAnnotations == nil {
		b.RuntimeAnnotations = []string{
			"kubernetes.io/*", "io.containerd.cri.runtime-handler", "io.katacontainers.*", "dev.gvisor.*", "*.nri.io/*",
			"rdt.resources.beta.kubernetes.io/*", "blockio.resources.beta.kubernetes.io/*",
		}
	}
	orValue(&b.RelistPeriod.Duration, 30*time.Second)
	orValue(&b.History.MaxSize, "16Mi")
	orValue(&b.History.MaxAge.Duration, 7*24*time.Hour)
}

// defaultParallelPodStarts is four times the cores, at least 8 and at most 16. Measured on 2 cores,
// containerd starts most pods per second with 8 to 16 at the same time (test/bench/results.md), and
// a third fewer with 50.
func defaultParallelPodStarts(cores int) int32 {
	return int32(min(max(4*cores, 8), 16))
}
