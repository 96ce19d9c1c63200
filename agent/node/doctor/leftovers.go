package doctor

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/berthd/berth/internal/plural"
)

// leftovers looks for what is left of pods that do not exist any more. The agent removes such
// things by itself, at the latest one minute after its start. What this check finds while the agent
// runs is what the agent could not remove.
func leftovers(ctx context.Context, h *Host) []Finding {
	sandboxes, err := h.Runtime.ListPodSandbox(ctx, nil)
	if err != nil {
		return []Finding{hint("see the runtime check",
			"what is left over cannot be said: the runtime does not list its pods")}
	}
	known := map[string]bool{}
	for _, s := range sandboxes {
		known[s.GetMetadata().GetUid()] = true
	}
	for _, name := range h.Files.names(filepath.Join(h.Config.RootDir, "berth",
		"pods")) { // the agent knows the pods of its checkpoints
		known[strings.TrimSuffix(name, filepath.Ext(name))] = true
	}
	out := slices.Concat(h.leftMounts(known), h.leftCgroups(ctx, known), h.leftFiles(ctx), h.leftShims(ctx))
	if len(out) == 0 {
		out = append(out, ok("no mount, cgroup, network namespace or shim is left over"))
	}
	return out
}

// unmanagedCgroup is the advice for a cgroup that may be another agent's.
const unmanagedCgroup = "if no other agent or kubelet runs here, end the processes that its cgroup.procs names, and " +
	"remove it with rmdir"

const runAgent = "start the agent, which removes it (systemctl start berth); if it runs, its log says why it could not"

// leftMounts finds mounts in directories of pods that do not exist.
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
		out = append(out, warning(runAgent, "%s of pod %s, which is not there any more", plural.Of(left[uid], "mount"),
			uid))
	}
	return out
}

// leftCgroups finds cgroups of pods that do not exist. The agent removes the cgroups of pods that
// have a directory; other cgroups may be another agent's.
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
			out = append(out,
				warning(unmanagedCgroup, "a cgroup of pod %s, of which neither the runtime nor this agent knows", uid))
		}
	}
	return out
}

// leftFiles finds network namespaces and bundles that the runtime has lost track of.
func (h *Host) leftFiles(ctx context.Context) []Finding {
	if h.Forgotten == nil {
		return nil
	}
	paths, err := h.Forgotten.ForgottenPaths(ctx)
	if err != nil || len(paths) == 0 {
		return nil
	}
	return []Finding{warning(runAgent, "containerd has forgotten %s (network namespaces, bundles): %s",
		plural.Of(len(paths), "path"), strings.Join(paths, " "))}
}

// leftShims finds processes that the runtime has lost track of.
func (h *Host) leftShims(ctx context.Context) []Finding {
	if h.Forgotten == nil {
		return nil
	}
	pids, err := h.Forgotten.ForgottenShims(ctx)
	if err != nil || len(pids) == 0 {
		return nil
	}
	return []Finding{warning(runAgent, "containerd has forgotten %s: processes %s", plural.Of(len(pids), "shim"),
		strings.Trim(fmt.Sprint(pids), "[]"))}
}

// runs finds what a "berth run" has left that was killed.
func runs(_ context.Context, h *Host) []Finding {
	found, err := h.Foregrounds()
	if err != nil {
		return []Finding{hint("become root (sudo)", "runs in the foreground cannot be listed: %v", err)}
	}
	var out []Finding
	for _, r := range found {
		if r.Lives {
			out = append(out, ok("the run in %s goes on (process %d)", r.RootDir, r.PID))
			continue
		}
		out = append(out, warning("berth run --clean, which stops the pod and removes the directory",
			"a \"berth run\" was killed, and left its pod and the directory %s", r.RootDir))
	}
	if len(out) == 0 {
		out = append(out, ok("no \"berth run\" runs or has left anything"))
	}
	return out
}
