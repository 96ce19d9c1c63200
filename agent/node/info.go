package node

import (
	"context"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

// KubernetesVersion returns the release of Kubernetes whose kubelet this agent replaces, read from
// the versions of its libraries. The suffix +berth shows that the agent is not a kubelet.
func KubernetesVersion() string {
	info, ok := debug.ReadBuildInfo()
	if ok {
		for _, dep := range info.Deps {
			if rest, found := strings.CutPrefix(dep.Version, "v0."); found && dep.Path == "k8s.io/api" {
				return "v1." + rest + "+berth"
			}
		}
	}
	return "v1.36.0+berth"
}

// Info returns the facts about the machine for a Node object. runtimeVersion is the container
// runtime's version as NAME://VERSION.
func (n *Node) Info(runtimeVersion string) v1.NodeSystemInfo {
	info := v1.NodeSystemInfo{
		MachineID:               firstLine("/etc/machine-id", "/var/lib/dbus/machine-id"),
		BootID:                  firstLine("/proc/sys/kernel/random/boot_id"),
		KernelVersion:           kernelRelease(),
		OSImage:                 osImage(firstFile("/etc/os-release", "/usr/lib/os-release")),
		ContainerRuntimeVersion: runtimeVersion,
		KubeletVersion:          KubernetesVersion(),
		OperatingSystem:         runtime.GOOS,
		Architecture:            runtime.GOARCH,
	}
	if info.SystemUUID = firstLine("/sys/class/dmi/id/product_uuid",
		"/proc/device-tree/system-id"); info.SystemUUID == "" {
		info.SystemUUID = info.MachineID
	}
	if data, err := readFile("/proc/meminfo"); err == nil {
		if swap := swapTotal(string(data)); swap > 0 {
			info.Swap = &v1.NodeSwapStatus{Capacity: ptr.To(swap)}
		}
	}
	return info
}

// firstFile returns the content of the first file that can be read; empty if there is none.
func firstFile(paths ...string) string {
	for _, path := range paths {
		if data, err := readFile(path); err == nil {
			return string(data)
		}
	}
	return ""
}

// firstLine returns the first line of the first file that has a line.
func firstLine(paths ...string) string {
	for _, path := range paths {
		line, _, _ := strings.Cut(firstFile(path), "\n")
		if line = strings.Trim(line, " \t\x00"); line != "" {
			return line
		}
	}
	return ""
}

// osImage returns the name of the operating system from os-release, for people.
func osImage(release string) string {
	for line := range strings.Lines(release) {
		if value, ok := strings.CutPrefix(line, "PRETTY_NAME="); ok {
			return strings.Trim(strings.TrimSpace(value), `"'`)
		}
	}
	return "Unknown"
}

// swapTotal returns the size of the machine's swap in bytes, from /proc/meminfo.
func swapTotal(meminfo string) int64 {
	for line := range strings.Lines(meminfo) {
		if rest, ok := strings.CutPrefix(line, "SwapTotal:"); ok {
			kib, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")), 10, 53)
			if err == nil && kib > 0 {
				return kib << 10
			}
		}
	}
	return 0
}

// SetObject sets the Node object that the API server has of the node: pods select nodes by its
// labels, and its taints and extended resources count, too. Before the first call the labels are
// those of the config, and there are no taints.
func (n *Node) SetObject(object *v1.Node) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.object = object
}

// SetReread sets what reads the Node object anew and gives it to [Node.SetObject].
func (n *Node) SetReread(reread func(ctx context.Context)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.reread = reread
}

// Reread reads the Node object anew. Without a cluster there is none.
func (n *Node) Reread(ctx context.Context) {
	n.mu.Lock()
	reread := n.reread
	n.mu.Unlock()
	if reread != nil {
		reread(ctx)
	}
}
