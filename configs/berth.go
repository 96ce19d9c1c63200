package configs

import (
	"runtime"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	// MaxParallelPodStarts bounds how many pods start at once. Default twice the cores, at least 4 and at most 8.
	MaxParallelPodStarts int32 `json:"maxParallelPodStarts,omitempty"`
	// ImagesDir holds image archives (*.tar) imported at start. Default /var/lib/berth/images.
	ImagesDir string `json:"imagesDir,omitempty"`
	// ContainerLogsDir holds the links POD_NAMESPACE_CONTAINER-ID.log that log shippers read. Default /var/log/containers.
	ContainerLogsDir string `json:"containerLogsDir,omitempty"`
	// CNI says where network configs and plugins are.
	CNI CNIConfiguration `json:"cni,omitempty"`
	// RelistPeriod is how often the runtime is listed in full, should events have been lost. Default 30s.
	RelistPeriod metav1.Duration `json:"relistPeriod,omitempty"`
}

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

// setDefaults fills in what the user left out.
func (b *BerthConfiguration) setDefaults() {
	b.APIVersion, b.Kind = BerthAPIVersion, BerthKind
	orValue(&b.Socket, "/run/berth/berth.sock")
	orValue(&b.SocketGroup, "berth")
	orValue(&b.Runtime, RuntimeAuto)
	orValue(&b.Sandbox.Pause, PauseAuto)
	orValue(&b.MaxParallelPodStarts, defaultParallelPodStarts(runtime.NumCPU()))
	orValue(&b.ImagesDir, "/var/lib/berth/images")
	orValue(&b.ContainerLogsDir, "/var/log/containers")
	orValue(&b.CNI.ConfDir, "/etc/cni/net.d")
	if len(b.CNI.BinDirs) == 0 {
		b.CNI.BinDirs = []string{"/opt/cni/bin", "/usr/lib/cni"}
	}
	orValue(&b.RelistPeriod.Duration, 30*time.Second)
}

// defaultParallelPodStarts is twice the cores, within 4 and 8: measured on 2 cores, containerd starts most pods per
// second at 4 to 8 at a time and a third fewer at 50.
func defaultParallelPodStarts(cores int) int32 {
	return int32(min(max(2*cores, 4), 8))
}
