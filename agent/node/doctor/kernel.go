package doctor

import (
	"context"
	"slices"
	"strings"
)

const (
	// leastKernel has openat2(2), without which volumes are not secure. goodKernel has idmapped
	// mounts of the usual file systems (mount_setattr(2)).
	leastKernel = "5.6"
	goodKernel  = "5.12"
)

// kernel checks the kernel's version and the features that containers need.
func kernel(_ context.Context, h *Host) []Finding {
	release := h.Files.text("/proc/sys/kernel/osrelease")
	var out []Finding
	switch {
	case release == "":
		return []Finding{failure("mount /proc", "the kernel's version cannot be read")}
	case less(release, leastKernel):
		out = append(out, failure("install a kernel of at least "+leastKernel, "kernel %s has no openat2", release))
	case less(release, goodKernel):
		out = append(out,
			hint("a kernel of at least "+goodKernel+" has all that pods can ask for",
				"kernel %s has no idmapped mounts", release))
	default:
		out = append(out, ok("kernel %s", release))
	}
	if !slices.Contains(strings.Fields(h.Files.text("/proc/filesystems")), "overlay") {
		out = append(out,
			warning("modprobe overlay, and put overlay into /etc/modules-load.d/berth.conf",
				"the kernel knows no overlay file system: images take more space and time"))
	}
	for _, name := range []string{"net", "pid", "ipc", "uts", "mnt"} {
		if !h.Files.exists("/proc/self/ns/" + name) {
			out = append(out, failure("use a kernel that has all namespaces", "the kernel has no %s namespaces", name))
		}
	}
	if !h.Files.exists("/proc/self/ns/user") {
		out = append(out, hint("use a kernel with CONFIG_USER_NS", "the kernel has no user namespaces"))
	}
	if !strings.Contains(h.Files.text("/proc/self/status"), "Seccomp:") {
		out = append(out,
			warning("use a kernel with CONFIG_SECCOMP",
				"the kernel has no seccomp: system calls of containers cannot be filtered"))
	}
	return out
}

// needed are the controllers that the limits of pods need.
var needed = []string{"cpu", "cpuset", "memory", "pids"}

// cgroupControllers checks for the controllers that limits need.
func cgroupControllers(_ context.Context, h *Host) []Finding {
	unified := h.Files.text("/sys/fs/cgroup/cgroup.controllers")
	have := strings.Fields(unified)
	version := "v2"
	if unified == "" {
		version = "v1"
		have = mountedControllers(h.Files.text("/proc/self/mounts"))
	}
	var missing []string
	for _, c := range needed {
		if !slices.Contains(have, c) {
			missing = append(missing, c)
		}
	}
	if len(missing) > 0 {
		return []Finding{failure("boot with cgroup_enable=memory cgroup_memory=1 where that is what is missing, or "+
			"with systemd.unified_cgroup_hierarchy=1",
			"cgroup %s has no %s controller", version, strings.Join(missing, ", "))}
	}
	if version == "v1" {
		return []Finding{hint("boot with systemd.unified_cgroup_hierarchy=1",
			"cgroup v1: it works, but without memory protection and pressure figures, and Kubernetes phases it out")}
	}
	return []Finding{ok("cgroup v2 with %s", strings.Join(needed, ", "))}
}

// mountedControllers returns the mounted v1 controllers, from /proc/self/mounts.
func mountedControllers(mounts string) []string {
	var out []string
	for line := range strings.Lines(mounts) {
		if fields := strings.Fields(line); len(fields) > 3 && fields[2] == "cgroup" {
			out = append(out, strings.Split(fields[3], ",")...)
		}
	}
	return out
}

// swap checks for swap, if the config does not allow swap.
func swap(_ context.Context, h *Host) []Finding {
	lines := strings.Split(h.Files.text("/proc/swaps"), "\n") // the first line is the heading
	if len(lines) < 2 {
		return []Finding{ok("no swap")}
	}
	device := strings.Fields(lines[1])[0]
	if fail := h.Config.Kubelet.FailSwapOn; fail != nil && *fail && h.Config.IsSet("failSwapOn") {
		return []Finding{failure("swapoff -a, or failSwapOn: false in the config",
			"this host swaps to %s, and failSwapOn is set: the agent will not start", device)}
	}
	return []Finding{ok("this host swaps to %s; containers get no swap where the kernel counts it", device)}
}

// sysctls checks the kernel settings that the pods' networks and file watches need.
func sysctls(_ context.Context, h *Host) []Finding {
	var out []Finding
	if h.Files.text("/proc/sys/net/ipv4/ip_forward") == "0" {
		out = append(out,
			hint("sysctl -w net.ipv4.ip_forward=1 (the bridge plugin does it, too, with the first pod)",
				"the kernel does not forward packets: pods reach nothing beyond this node"))
	}
	if h.Files.text("/proc/sys/net/bridge/bridge-nf-call-iptables") == "0" {
		out = append(out,
			hint("sysctl -w net.bridge.bridge-nf-call-iptables=1",
				"packets between pods of this node bypass iptables: hostPorts and Services are not seen by them"))
	}
	if n := h.Files.text("/proc/sys/fs/inotify/max_user_instances"); n != "" && less(n, "512") {
		out = append(out,
			hint("sysctl -w fs.inotify.max_user_instances=1024",
				"only %s inotify instances for each user: with many pods file watches run out", n))
	}
	if len(out) == 0 {
		out = append(out, ok("forwarding, bridges and file watches are set"))
	}
	return out
}
