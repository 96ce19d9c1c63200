package doctor

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// directories checks the directories that the agent reads and writes.
func directories(_ context.Context, h *Host) []Finding {
	var out []Finding
	c := h.Config
	manifests := c.Kubelet.StaticPodPath
	info, err := h.Files.stat(manifests)
	switch {
	case err != nil:
		out = append(out,
			warning("mkdir -p -m 0700 "+manifests, "the manifest directory %s is not there: no pod will run",
				manifests))
	case info.Mode().Perm()&0o022 != 0:
		out = append(out,
			warning("chmod go-w "+manifests,
				"others may write to the manifest directory %s, and whoever may is root on this machine", manifests))
	case owner(info.Sys()) != 0:
		out = append(out,
			warning("chown root "+manifests,
				"the manifest directory %s is not root's, and whoever may write to it is root on this machine",
				manifests))
	default:
		out = append(out, ok("manifests come from %s", manifests))
	}
	if info, err := h.Files.stat(c.RootDir); err == nil && info.Mode().Perm()&0o022 != 0 {
		out = append(out,
			warning("chmod go-w "+c.RootDir, "others may write to %s, where pods' volumes are", c.RootDir))
	}
	return out
}

// owner returns the user id of a file's owner, or root's if it is not known.
func owner(sys any) uint32 {
	if s, ok := sys.(*syscall.Stat_t); ok {
		return s.Uid
	}
	return 0
}

const (
	// If less than lowPercent is free, disk warns; below fullPercent it fails. lowPercent is the
	// kubelet's nodefs.available for eviction.
	lowPercent  = 10
	fullPercent = 2
	// lowInodes is the kubelet's nodefs.inodesFree for eviction.
	lowInodes = 5
)

// disk checks the free space for pods, logs and images.
func disk(ctx context.Context, h *Host) []Finding {
	var out []Finding
	for _, dir := range append([]string{h.Config.RootDir, h.Config.Kubelet.PodLogsDir}, runtimeDirs(ctx, h)...) {
		at := dir
		for at != "/" && !h.Files.exists(at) {
			at = filepath.Dir(at)
		}
		s, err := h.Space(at)
		if err != nil || s.Bytes == 0 {
			continue
		}
		free := s.FreeBytes * 100 / s.Bytes
		fix := "make room: berth images, journalctl --vacuum-size=200M, du -xh " + at
		switch {
		case free < fullPercent:
			out = append(out, failure(fix, "the file system of %s is full: %d %% are free", dir, free))
		case free < lowPercent:
			out = append(out, warning(fix, "the file system of %s is nearly full: %d %% are free", dir, free))
		case s.Inodes > 0 && s.FreeInodes*100/s.Inodes < lowInodes:
			out = append(out,
				warning("remove small files: du --inodes -x "+at,
					"the file system of %s has hardly any inodes left", dir))
		default:
			out = append(out, ok("%s: %d %% free", dir, free))
		}
	}
	return out
}

// runtimeDirs returns the directories in which the runtime has images and containers. For
// containerd, it is the root directory above those of its plugins. If the runtime does not answer,
// it is containerd's default.
func runtimeDirs(ctx context.Context, h *Host) []string {
	info, err := h.Runtime.ImageFsInfo(ctx)
	var out []string
	for _, fs := range slices.Concat(info.GetImageFilesystems(), info.GetContainerFilesystems()) {
		dir := fs.GetFsId().GetMountpoint()
		if strings.HasPrefix(filepath.Base(dir), "io.containerd.") {
			dir = filepath.Dir(dir)
		}
		if filepath.IsAbs(dir) && !slices.Contains(out, dir) {
			out = append(out, dir)
		}
	}
	if err != nil || len(out) == 0 {
		return []string{"/var/lib/containerd"}
	}
	return out
}

// clock checks whether something keeps the clock synchronized.
func clock(_ context.Context, h *Host) []Finding {
	synced, err := h.Synchronized()
	switch {
	case err != nil:
		return []Finding{hint("", "the state of the clock cannot be read: %v", err)}
	case !synced:
		return []Finding{warning("timedatectl set-ntp true, or install chrony",
			"the clock is not synchronised: certificates and logs may be off")}
	}
	return []Finding{ok("the clock is synchronised")}
}

// service checks the units of systemd, if systemd runs.
func service(ctx context.Context, h *Host) []Finding {
	if !h.Files.exists("/run/systemd/system") {
		return []Finding{ok("no systemd here")}
	}
	text, err := h.Command(ctx, "systemctl", "show", "berth.service", "-p",
		"LoadState,ActiveState,UnitFileState,NRestarts")
	if err != nil {
		return []Finding{hint("", "systemd does not answer: %v", err)}
	}
	unit := properties(text)
	var out []Finding
	switch {
	case unit["LoadState"] == "not-found":
		return []Finding{hint("install the package, which brings it",
			"there is no berth.service: the agent will not start with the machine")}
	case unit["ActiveState"] == "failed":
		out = append(out, failure("journalctl -u berth -e, then systemctl restart berth", "berth.service has failed"))
	case unit["ActiveState"] != "active":
		out = append(out, hint("systemctl enable --now berth", "berth.service is %s", unit["ActiveState"]))
	case unit["UnitFileState"] == "disabled":
		out = append(out, warning("systemctl enable berth", "berth.service runs, but will not start with the machine"))
	default:
		out = append(out, ok("berth.service is active"))
	}
	if n := unit["NRestarts"]; n != "" && n != "0" {
		out = append(out, hint("journalctl -u berth says why", "systemd has restarted the agent %s times", n))
	}
	if text, err := h.Command(ctx, "systemctl", "show", "containerd.service", "-p",
		"LoadState,UnitFileState"); err == nil {
		if u := properties(text); u["LoadState"] == "loaded" && u["UnitFileState"] == "disabled" {
			out = append(out,
				hint("systemctl enable containerd", "containerd starts with the machine only because berth wants it"))
		}
	}
	return out
}

// properties parses the output of "systemctl show".
func properties(text string) map[string]string {
	out := map[string]string{}
	for line := range strings.Lines(text) {
		if key, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok {
			out[key] = value
		}
	}
	return out
}

// agentAnswers checks whether the agent runs, whether it is the one that is meant and may run pods,
// its config and its version.
func agentAnswers(ctx context.Context, h *Host) []Finding {
	var out []Finding
	if h.Drained() {
		out = append(out, warning("berth drain --undo", "the node is drained: no pod runs"))
	}
	v, err := h.Agent(ctx)
	switch {
	case denied(err):
		return []Finding{hint(asRoot, "this user may not use the agent's socket %s: whether it runs is not known",
			h.Config.Berth.Socket)}
	case err != nil:
		fix := "berth agent, in a terminal or under a service manager"
		if h.Files.exists("/run/systemd/system") {
			fix = "systemctl enable --now berth"
		}
		return append(out, hint(fix, "%v", err))
	case !v.Same:
		return append(out, warning("give the --config and --root-dir of the agent that is meant, or its --socket",
			"the agent that answers at %s is another one: its root directory is %s, and the checks look at %s",
			h.Config.Berth.Socket, v.RootDir, h.Config.RootDir))
	}
	if v.ConfigFault != "" {
		out = append(out, warning(v.ConfigRemedy, "%s", v.ConfigFault))
	}
	if v.Version != h.Version {
		return append(out, warning("systemctl restart berth: no pod is disturbed",
			"the agent that runs is berth %s, and this is berth %s", v.Version, h.Version))
	}
	return append(out, ok("the agent answers at %s", h.Config.Berth.Socket))
}
