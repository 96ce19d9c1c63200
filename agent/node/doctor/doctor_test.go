package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berthd/berth/configs"
)

// deprecations is a condition of containerd's own, without which pods run.
const deprecations = "ContainerdHasNoDeprecationWarnings"

// runtime answers as a test wants it to.
type runtime struct {
	version   string
	err       error
	notReady  string
	config    string
	sandboxes []string
	images    []string
	dirs      []string
	shims     []int
	netns     []string
	// deprecated is what containerd warns of, with notReady.
	deprecated string
}

func (r *runtime) Version(context.Context) (*runtimeapi.VersionResponse, error) {
	return &runtimeapi.VersionResponse{RuntimeName: "containerd", RuntimeVersion: r.version}, r.err
}

func (r *runtime) Status(context.Context, bool) (*runtimeapi.StatusResponse, error) {
	conditions := []*runtimeapi.RuntimeCondition{
		{Type: runtimeapi.RuntimeReady, Status: r.notReady != runtimeapi.RuntimeReady, Message: "why"},
		{
			Type:    runtimeapi.NetworkReady,
			Status:  r.notReady != runtimeapi.NetworkReady,
			Message: "cni plugin not initialized",
		},
		{
			Type: deprecations, Status: r.notReady != deprecations,
			Message: cmp.Or(r.deprecated,
				`{"io.containerd.deprecation/x": "mirrors is old", "io.containerd.deprecation/c": "cgroup v1 is old"}`),
		},
	}
	return &runtimeapi.StatusResponse{
		Status: &runtimeapi.RuntimeStatus{Conditions: conditions}, Info: map[string]string{"config": r.config},
	}, r.err
}

func (r *runtime) ListPodSandbox(context.Context, *runtimeapi.PodSandboxFilter) ([]*runtimeapi.PodSandbox, error) {
	var out []*runtimeapi.PodSandbox
	for _, uid := range r.sandboxes {
		out = append(out, &runtimeapi.PodSandbox{Metadata: &runtimeapi.PodSandboxMetadata{Uid: uid}})
	}
	return out, r.err
}

func (r *runtime) ListImages(context.Context) ([]*runtimeapi.Image, error) {
	return []*runtimeapi.Image{{Id: "sha256:1", RepoTags: r.images}}, r.err
}

func (r *runtime) ImageFsInfo(context.Context) (*runtimeapi.ImageFsInfoResponse, error) {
	out := &runtimeapi.ImageFsInfoResponse{}
	for _, dir := range r.dirs {
		out.ImageFilesystems = append(out.ImageFilesystems,
			&runtimeapi.FilesystemUsage{FsId: &runtimeapi.FilesystemIdentifier{Mountpoint: dir}})
	}
	return out, r.err
}

func (r *runtime) ForgottenShims(context.Context) ([]int, error) { return r.shims, r.err }

func (r *runtime) ForgottenPaths(context.Context) ([]string, error) {
	return r.netns, r.err
}

// machine is a host on which nothing is wrong; tests spoil it.
type machine struct {
	*Host
	t       *testing.T
	dir     string
	runtime *runtime
	output  map[string]string
	space   Space
	synced  bool
	cgroups []types.UID
	agent   Agent
	drained bool

	taken    []string
	takenErr error

	runs    []Foreground
	runsErr error
	gone    error
}

func newMachine(t *testing.T) *machine {
	dir := t.TempDir()
	config := filepath.Join(dir, "config.yaml")
	if err := os.WriteFile(config, []byte("apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	cfg, _, err := configs.Load(configs.Options{File: config})
	if err != nil {
		t.Fatal(err)
	}
	m := &machine{
		t:      t,
		dir:    filepath.Join(dir, "root"),
		synced: true,
		agent:  Agent{Version: "v1", Same: true},
		space:  Space{Bytes: 100, FreeBytes: 50, Inodes: 100, FreeInodes: 50},
		runtime: &runtime{
			version: "2.3.5",
			images:  []string{"pause:1"},
			config:  `{"pinnedImages": {"sandbox": "pause:1"}, "statsCollectPeriod": "24h0m0s"}`,
		},
		output: map[string]string{
			"runc":      "runc version 1.4.0\n",
			"portmap":   "CNI portmap plugin v1.9.0\n",
			"systemctl": "LoadState=loaded\nActiveState=active\nUnitFileState=enabled\nNRestarts=0\n",
		},
	}
	m.Host = &Host{
		Config: cfg, Runtime: m.runtime, Endpoint: cfg.Kubelet.ContainerRuntimeEndpoint, Forgotten: m.runtime,
		Files: Files(m.dir), Version: "v1",
		Command: func(_ context.Context, name string, _ ...string) (string, error) {
			if text, ok := m.output[filepath.Base(name)]; ok {
				return text, nil
			}
			return "", errors.New("no such program")
		},
		Space:        func(string) (Space, error) { return m.space, nil },
		Synchronized: func() (bool, error) { return m.synced, nil },
		PodCgroups:   func(context.Context) ([]types.UID, error) { return m.cgroups, nil },
		Foregrounds:  func() ([]Foreground, error) { return m.runs, m.runsErr },
		Agent:        func(context.Context) (Agent, error) { return m.agent, m.gone },
		Drained:      func() bool { return m.drained },

		HostPortsTaken: func(context.Context) ([]string, error) { return m.taken, m.takenErr },
	}
	m.put("/proc/sys/kernel/osrelease", "6.1.0-18-amd64")
	m.put("/proc/filesystems", "nodev\toverlay\n")
	for _, ns := range []string{"net", "pid", "ipc", "uts", "mnt", "user"} {
		m.put("/proc/self/ns/"+ns, "")
	}
	m.put("/proc/self/status", "Seccomp:\t0\n")
	m.put("/sys/fs/cgroup/cgroup.controllers", "cpuset cpu io memory hugetlb pids")
	m.put("/proc/swaps", "Filename Type Size Used Priority\n")
	m.put("/etc/cni/net.d/10-net.conflist",
		`{"name": "net", "plugins": [{"type": "bridge", "ipam": {"type": "host-local"}}, {"type": "portmap"}]}`)
	for _, name := range []string{"bridge", "host-local", "portmap"} {
		m.put("/usr/lib/cni/"+name, "")
	}
	m.put("/etc/kubernetes/manifests/.keep", "")
	m.put("/run/systemd/system/.keep", "")
	return m
}

func (m *machine) put(path, text string) {
	m.t.Helper()
	full := filepath.Join(m.dir, path)
	if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
		m.t.Fatal(err)
	}
	if err := os.WriteFile(full, []byte(text), 0o600); err != nil {
		m.t.Fatal(err)
	}
}

func (m *machine) remove(path string) {
	m.t.Helper()
	if err := os.RemoveAll(filepath.Join(m.dir, path)); err != nil {
		m.t.Fatal(err)
	}
}

func TestNothingWrong(t *testing.T) {
	m := newMachine(t)
	if os.Geteuid() != 0 {
		m.remove("/etc/kubernetes/manifests") // it would not be root's
		m.put("/etc/kubernetes/manifests", "")
	}
	r := Run(t.Context(), m.Host)
	for _, f := range r.Findings {
		if f.Level != OK && (os.Geteuid() == 0 || f.Check != "directories") {
			t.Errorf("%+v", f)
		}
	}
	if len(r.Findings) < len(Names()) {
		t.Errorf("%d findings of %d checks", len(r.Findings), len(Names()))
	}
}

func TestFindings(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(m *machine)
		check string
		level Level
		says  string
	}{
		"old kernel": {
			func(m *machine) { m.put("/proc/sys/kernel/osrelease", "5.4.0-42") }, "kernel", Error, "openat2",
		},
		"oldish kernel": {
			func(m *machine) { m.put("/proc/sys/kernel/osrelease", "5.10.0") }, "kernel", Hint, "idmapped",
		},
		"no overlay": {
			func(m *machine) { m.put("/proc/filesystems", "ext4") }, "kernel", Warning, "overlay",
		},
		"no pid namespace": {
			func(m *machine) { m.remove("/proc/self/ns/pid") }, "kernel", Error, "pid namespaces",
		},
		"no memory cgroup": {
			func(m *machine) { m.put("/sys/fs/cgroup/cgroup.controllers", "cpu cpuset pids") }, "cgroups", Error,
			"no memory controller",
		},
		"cgroup v1": {v1Host, "cgroups", Hint, "cgroup v1"},
		"swap": {
			func(m *machine) { m.put("/proc/swaps", "Filename\n/dev/sda2 partition 1 0 -1") }, "swap", OK, "/dev/sda2",
		},
		"no forwarding": {
			func(m *machine) { m.put("/proc/sys/net/ipv4/ip_forward", "0") }, "network", Hint, "forward",
		},
		"runtime away": {
			func(m *machine) { m.runtime.err = errdefs.ErrUnavailable }, "runtime", Error, "does not answer",
		},
		"no CRI": {
			func(m *machine) { m.runtime.err = errdefs.ErrNotImplemented }, "runtime", Error, "no CRI",
		},
		"no network": {
			func(m *machine) { m.runtime.notReady = runtimeapi.NetworkReady }, "runtime", Error, "not initialized",
		},
		"deprecations": {
			func(m *machine) { m.runtime.notReady = deprecations }, "runtime", Warning,
			"the runtime says that " + deprecations + " is not so: cgroup v1 is old; mirrors is old",
		},
		"no sandbox image": {
			func(m *machine) { m.runtime.images = nil }, "runtime", Hint, "sandbox image pause:1",
		},
		"1.x sandbox image": {
			func(m *machine) { m.runtime.config = `{"sandboxImage": "registry.k8s.io/pause:3.6"}` }, "runtime", Hint,
			"pause:3.6",
		},
		"statistics": {func(m *machine) { m.runtime.config = `{}` }, "runtime", Hint, "each second"},
		"holes": {
			func(m *machine) { m.runtime.version = "1.6.20~ds1" }, "versions", Warning, "CVE-2024-40635",
		},
		"holes of runc": {
			func(m *machine) { m.output["runc"] = "runc version 1.1.5+ds1" }, "versions", Warning, "CVE-2024-21626",
		},
		"no CNI config":     {func(m *machine) { m.remove("/etc/cni/net.d") }, "cni", Error, "no network config"},
		"broken CNI config": {func(m *machine) { m.put("/etc/cni/net.d/00.conf", "{") }, "cni", Error, "no JSON"},
		"no plugin":         {func(m *machine) { m.remove("/usr/lib/cni/host-local") }, "cni", Error, "host-local"},
		"old portmap": {
			func(m *machine) { m.output["portmap"] = "CNI portmap plugin v1.1.1" }, "cni", Warning, "CVE-2025-67499",
		},
		"no manifests": {
			func(m *machine) { m.remove("/etc/kubernetes") }, "directories", Warning, "not there",
		},
		"open manifests": {openManifests, "directories", Warning, "others may write"},
		"nearly full":    {func(m *machine) { m.space.FreeBytes = 9 }, "disk", Warning, "nearly full"},
		"full":           {func(m *machine) { m.space.FreeBytes = 1 }, "disk", Error, "is full"},
		"no inodes":      {func(m *machine) { m.space.FreeInodes = 1 }, "disk", Warning, "inodes"},
		"clock":          {func(m *machine) { m.synced = false }, "clock", Warning, "not synchronised"},
		"no unit": {
			func(m *machine) { m.output["systemctl"] = "LoadState=not-found\n" }, "service", Hint, "no berth.service",
		},
		"failed unit": {
			func(m *machine) { m.output["systemctl"] = "LoadState=loaded\nActiveState=failed\n" }, "service", Error,
			"has failed",
		},
		"unit not enabled": {
			func(m *machine) { m.output["systemctl"] = "ActiveState=active\nUnitFileState=disabled\n" }, "service",
			Warning, "will not start",
		},
		"restarts": {
			func(m *machine) { m.output["systemctl"] = "ActiveState=active\nNRestarts=3\n" }, "service", Hint,
			"3 times",
		},
		"no systemd": {func(m *machine) { m.remove("/run/systemd") }, "service", OK, "no systemd"},
		"no agent": {
			func(m *machine) { m.gone = errors.New("berth agent is not running") }, "agent", Hint, "not running",
		},
		"a hostPort that is taken": {
			func(m *machine) { m.taken = []string{"pod ns/web: the process 7 (nginx)"} }, "hostports", Warning,
			"pod ns/web: the process 7 (nginx)",
		},
		"unknown host ports": {
			func(m *machine) { m.takenErr = errors.New("no such directory") }, "hostports", Hint, "no such directory",
		},
		"a drained node": {func(m *machine) { m.drained = true }, "agent", Warning, "the node is drained"},
		"another agent":  {func(m *machine) { m.agent.Version = "v0" }, "agent", Warning, "berth v0"},
		"an agent that others may not ask": {
			func(m *machine) { m.gone = fmt.Errorf("you may not use it: %w", fs.ErrPermission) }, "agent", Hint,
			"this user may not use the agent's socket",
		},
		"a runtime that others may not ask": {
			func(m *machine) { m.runtime.err = errors.New("dial unix /run/c.sock: connect: permission denied") }, "runtime",
			Warning, "this user may not use the runtime",
		},
		"the runtime's CNI config": {
			func(m *machine) { m.runtime.config = `{"cni": {"confDir": "/opt/net.d"}}` }, "cni", Error,
			"there is no network config in /opt/net.d",
		},
		"the runtime's plugins": {
			func(m *machine) { m.runtime.config = `{"cni": {"binDirs": ["/opt/a", "/opt/b"]}}` }, "cni", Error,
			"which is not in /opt/a or /opt/b",
		},
		"the plugins of 1.x": {
			func(m *machine) { m.runtime.config = `{"cni": {"binDir": "/opt/a"}}` }, "cni", Error, "which is not in /opt/a",
		},
		"the agent's CNI config, of a runtime that says nothing": {
			func(m *machine) {
				m.runtime.config = "no JSON"
				m.remove("/etc/cni/net.d")
			}, "cni", Error, "there is no network config in /etc/cni/net.d",
		},
		"no CNI config, and no runtime": {
			func(m *machine) {
				m.runtime.err = errdefs.ErrUnavailable
				m.remove("/etc/cni/net.d")
			}, "cni", Hint, "there is no network config in /etc/cni/net.d, but the runtime",
		},
		"a killed run": {
			func(m *machine) { m.runs = []Foreground{{RootDir: "/run/left"}} }, "runs", Warning,
			"left its pod and the directory /run/left",
		},
		"a run that lives": {
			func(m *machine) { m.runs = []Foreground{{RootDir: "/run/lives", Lives: true, PID: 7}} }, "runs", OK,
			"the run in /run/lives goes on (process 7)",
		},
		"runs that nobody may see": {
			func(m *machine) { m.runsErr = errors.New("permission denied") }, "runs", Hint, "permission denied",
		},
		"a config that the agent refuses": {
			func(m *machine) {
				m.agent.ConfigFault, m.agent.ConfigRemedy = "c.yaml:3: maxPods: no number", "mend it"
			},
			"agent", Warning,
			"c.yaml:3: maxPods: no number",
		},
		"another agent's socket": {
			func(m *machine) { m.agent = Agent{Version: "v1", RootDir: "/other"} }, "agent", Warning,
			"its root directory is /other, and the checks look at /var/lib/kubelet",
		},
		"left mount": {leftMount, "leftovers", Warning, "2 mounts of pod gone"},
		"left cgroup": {
			leftCgroup, "leftovers", Warning, "a cgroup of pod gone, which is not there any more",
		},
		"another's cgroup": {
			func(m *machine) { m.cgroups = []types.UID{"theirs"} }, "leftovers", Warning,
			"a cgroup of pod theirs, of which neither",
		},
		"left network": {
			func(m *machine) { m.runtime.netns = []string{"/run/netns/cni-1"} }, "leftovers", Warning,
			"1 path (network namespaces, bundles): /run/netns/cni-1",
		},
		"left shim": {
			func(m *machine) { m.runtime.shims = []int{7, 8} }, "leftovers", Warning, "processes 7 8",
		},
		"runtime does not list": {
			func(m *machine) { m.runtime.err = errdefs.ErrUnavailable }, "leftovers", Hint, "cannot be said",
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			c.spoil(m)
			var got []string
			for _, f := range Run(t.Context(), m.Host).Findings {
				if f.Check != c.check {
					continue
				}
				got = append(got, fmt.Sprintf("%s: %s", f.Level, f.Message))
				if f.Level == c.level && strings.Contains(f.Message, c.says) {
					if f.Fix == "" && f.Level != OK {
						t.Errorf("%q does not say what to do", f.Message)
					}
					return
				}
			}
			t.Errorf("no %s with %q in %q", c.level, c.says, got)
		})
	}
}

// TestCgroupV1IsSaidOnce has a containerd that deprecates cgroup v1, which the check of the cgroups
// says in words of its own.
func TestCgroupV1IsSaidOnce(t *testing.T) {
	m := newMachine(t)
	v1Host(m)
	m.runtime.notReady = deprecations
	m.runtime.deprecated = `{"io.containerd.deprecation/cgroup-v1": "cgroup v1 is deprecated"}`
	var about []string
	for _, f := range Run(t.Context(), m.Host).Findings {
		if f.Level != OK && strings.Contains(f.Message, "cgroup v1") {
			about = append(about, f.Check)
		}
	}
	if !slices.Equal(about, []string{"cgroups"}) {
		t.Errorf("findings of cgroup v1: %q, want one", about)
	}
}

// TestStartOfAgent has the advice for a missing agent be a command that the machine has.
func TestStartOfAgent(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(m *machine)
		want  string
	}{
		"systemd":    {func(*machine) {}, "systemctl enable --now berth"},
		"no systemd": {func(m *machine) { m.remove("/run/systemd") }, "berth agent, "},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			m.gone = errors.New("berth agent is not running")
			c.spoil(m)
			for _, f := range Run(t.Context(), m.Host).Findings {
				if f.Check == "agent" && f.Level == Hint && strings.HasPrefix(f.Fix, c.want) {
					return
				}
			}
			t.Errorf("no advice that begins with %q", c.want)
		})
	}
}

func v1Host(m *machine) {
	m.remove("/sys/fs/cgroup/cgroup.controllers")
	m.put("/proc/self/mounts",
		"cgroup /sys/fs/cgroup/cpu cgroup rw,cpu,cpuacct 0 0\ncgroup /c cgroup rw,cpuset 0 0\ncgroup /m cgroup "+
			"rw,memory 0 0\ncgroup /p cgroup rw,pids 0 0\n")
}

func openManifests(m *machine) {
	if err := os.Chmod(filepath.Join(m.dir, "/etc/kubernetes/manifests"), 0o777); err != nil {
		m.t.Fatal(err)
	}
}

// leftMount has mounts of three pods, of which the runtime knows one and the agent another.
func leftMount(m *machine) {
	m.runtime.sandboxes = []string{"here"}
	m.put("/var/lib/kubelet/berth/pods/kept.json", "{}")
	m.put("/proc/self/mounts",
		"tmpfs /var/lib/kubelet/pods/gone/volumes/a tmpfs rw 0 0\ntmpfs /var/lib/kubelet/pods/gone/volumes/b tmpfs "+
			"rw 0 0\n"+
			"tmpfs /var/lib/kubelet/pods/here/volumes/a tmpfs rw 0 0\ntmpfs "+
			"/var/lib/kubelet/pods/kept/volumes/a tmpfs "+
			"rw 0 0\n")
}

func leftCgroup(m *machine) {
	m.cgroups = []types.UID{"gone"}
	m.put("/var/lib/kubelet/pods/gone/volumes/.keep", "")
}

func TestKnownPodsAreNotLeftOver(t *testing.T) {
	m := newMachine(t)
	leftMount(m)
	for _, f := range leftovers(t.Context(), m.Host) {
		if strings.Contains(f.Message, "pod here") || strings.Contains(f.Message, "pod kept") {
			t.Errorf("%+v", f)
		}
	}
}

func TestExitCode(t *testing.T) {
	for _, c := range []struct {
		levels []Level
		want   int
	}{
		{nil, 0},
		{[]Level{OK, Hint}, 0},
		{[]Level{Hint, Warning, OK}, 1},
		{[]Level{Error, Warning}, 2},
	} {
		var r Report
		for _, l := range c.levels {
			r.Findings = append(r.Findings, Finding{Level: l})
		}
		if got := r.ExitCode(); got != c.want {
			t.Errorf("%v: %d, want %d", c.levels, got, c.want)
		}
	}
}

func TestHoles(t *testing.T) {
	for _, c := range []struct {
		component, version, cve string
		open                    bool
	}{
		{"containerd", "1.6.20~ds1", "CVE-2024-40635", true},
		{"containerd", "v1.6.38", "CVE-2024-40635", false},
		{"containerd", "1.7.26", "CVE-2024-40635", true},
		{"containerd", "2.1.0", "CVE-2024-40635", false},
		{"containerd", "1.6.40", "CVE-2026-53488", true},
		{"containerd", "1.7.33", "CVE-2026-53488", false},
		{"containerd", "2.0.9", "CVE-2026-53488", true},
		{"containerd", "2.4.0", "CVE-2026-53488", false},
		{"containerd", "2.2.7", "CVE-2026-53495", true},
		{"containerd", "2.3.2", "CVE-2026-53495", false},
		{"containerd", "2.3.0", "CVE-2026-53495", false}, // nothing is known of that branch
		{"containerd", "v2.0.0-rc.1", "CVE-2024-40635", true},
		{"containerd", "main", "CVE", false},
		{"containerd", "1.6", "CVE", false},
		{"containerd", "", "CVE", false},
		{"cri-o", "1.2.3", "CVE", false},
		{"runc", "1.1.12", "CVE-2024-21626", false},
		{"runc", "1.2.8", "CVE-2025-31133", false},
		{"runc", "1.3.2", "CVE-2025-31133", true},
		{"runc", "1.1.15", "CVE-2025-31133", true},
		{"portmap", "1.9.0", "CVE-2025-67499", false},
		{"portmap", "1.8.0", "CVE-2025-67499", true},
	} {
		if got := strings.Contains(strings.Join(Holes(c.component, c.version), " "), c.cve); got != c.open {
			t.Errorf("%s %s and %s: open is %t", c.component, c.version, c.cve, got)
		}
	}
}

// The disk that counts is the one that the runtime uses, wherever its config put that.
func TestRuntimeDirectories(t *testing.T) {
	for name, c := range map[string]struct {
		dirs []string
		err  error
		want string
	}{
		"containerd": {
			[]string{"/data/containerd/io.containerd.snapshotter.v1.overlayfs"}, nil, "/data/containerd",
		},
		"CRI-O": {
			[]string{"/var/lib/containers/storage/overlay-images"}, nil, "/var/lib/containers/storage/overlay-images",
		},
		"two of one disk":  {[]string{"/x/io.containerd.a", "/x/io.containerd.b"}, nil, "/x"},
		"no answer":        {[]string{"/x"}, errors.New("unavailable"), "/var/lib/containerd"},
		"it does not know": {[]string{""}, nil, "/var/lib/containerd"},
	} {
		m := newMachine(t)
		m.runtime.dirs, m.runtime.err = c.dirs, c.err
		if got := strings.Join(runtimeDirs(t.Context(), m.Host), " "); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}
