package doctor

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
)

// leftovers looks for what pods have left that are not there any more. The agent removes such things by itself, a minute after it has started at the
// latest; what this finds while it runs is what it could not remove.
func leftovers(ctx context.Context, h *Host) []Finding {
	sandboxes, err := h.Runtime.ListPodSandbox(ctx, nil)
	if err != nil {
		return []Finding{hint("see the runtime check", "what is left over cannot be told: the runtime does not list its pods")}
	}
	known := map[string]bool{}
	for _, s := range sandboxes {
		known[s.GetMetadata().GetUid()] = true
	}
	for _, name := range h.Files.names(filepath.Join(h.Config.RootDir, "berth", "pods")) { // checkpoints: the agent knows these
		known[strings.TrimSuffix(name, filepath.Ext(name))] = true
	}
	out := slices.Concat(h.leftMounts(known), h.leftCgroups(ctx, known), h.leftFiles(ctx), h.leftShims(ctx))
	if len(out) == 0 {
		out = append(out, ok("no mount, cgroup, network namespace or shim is left over"))
	}
	return out
}

// foreignCgroup is the advice for a cgroup of which the agent does not know that it was its own.
const foreignCgroup = "if no other agent or kubelet runs here, end the processes that its cgroup.procs names, and remove it with rmdir"

const runAgent = "start the agent, which removes it (systemctl start berth); if it runs, its log says why it could not"

// leftMounts finds mounts in directories of pods that are not there.
func (h *Host) leftMounts(known map[string]bool) []Finding {
	pods := filepath.Join(h.Config.RootDir, "pods") + "/"
	left := map[string]int{}
	for line := range strings.Lines(h.Files.text("/proc/self/mounts")) {
		fields := strings.Fields(line)
		if len(fields) < 2 || !strings.HasPrefix(fields[1], pods) {
			continue
		}
		uid, _, _ := strings.Cut(strings.TrimPrefix(fields[1], pods), "/")
		if !known[uid] {
			left[uid]++
		}
	}
	var out []Finding
	for _, uid := range slices.Sorted(maps.Keys(left)) {
		out = append(out, warning(runAgent, "%d mounts of pod %s, which is not there any more", left[uid], uid))
	}
	return out
}

// leftCgroups finds cgroups of pods that are not there. The agent removes those of pods that have a directory: others may be other agents'.
func (h *Host) leftCgroups(ctx context.Context, known map[string]bool) []Finding {
	uids, err := h.PodCgroups(ctx)
	if err != nil {
		return []Finding{hint("", "pods' cgroups cannot be listed: %v", err)}
	}
	own := h.Files.names(filepath.Join(h.Config.RootDir, "pods"))
	var out []Finding
	for _, uid := range uids {
		switch {
		case known[string(uid)]:
		case slices.Contains(own, string(uid)):
			out = append(out, warning(runAgent, "a cgroup of pod %s, which is not there any more", uid))
		default:
			out = append(out, warning(foreignCgroup, "a cgroup of pod %s, of which neither the runtime nor this agent knows", uid))
		}
	}
	return out
}

// leftFiles finds network namespaces and bundles that the runtime has forgotten.
func (h *Host) leftFiles(ctx context.Context) []Finding {
	paths, err := h.Runtime.Forgotten(ctx)
	if err != nil || len(paths) == 0 {
		return nil
	}
	return []Finding{warning(runAgent, "containerd has forgotten %d network namespaces and bundles: %s", len(paths), strings.Join(paths, " "))}
}

// leftShims finds processes that the runtime has forgotten.
func (h *Host) leftShims(ctx context.Context) []Finding {
	pids, err := h.Runtime.ForgottenShims(ctx)
	if err != nil || len(pids) == 0 {
		return nil
	}
	return []Finding{warning(runAgent, "containerd has forgotten %d shims: processes %s", len(pids), strings.Trim(fmt.Sprint(pids), "[]"))}
}
