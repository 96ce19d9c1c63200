package native

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berthd/berth/cni"
	"github.com/berthd/berth/cri/native/images"
	"github.com/berthd/berth/internal/flock"
)

// specOf returns a spec with options.
func specOf(t *testing.T, opts ...oci.SpecOpts) *oci.Spec {
	t.Helper()
	ctx := namespaces.WithNamespace(t.Context(), "test")
	spec, err := oci.GenerateSpec(ctx, nil, &containers.Container{ID: "a"}, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return spec
}

// capability adds and drops one capability each, none if the name is empty.
func capability(add, drop string) *runtimeapi.Capability {
	return &runtimeapi.Capability{AddCapabilities: strings.Fields(add), DropCapabilities: strings.Fields(drop)}
}

func TestCapabilities(t *testing.T) {
	all := func() []string { return specOf(t, oci.WithAllCurrentCapabilities).Process.Capabilities.Bounding }
	standard := specOf(t).Process.Capabilities.Bounding
	without := func(list []string, name string) []string {
		return slices.DeleteFunc(slices.Clone(list), func(c string) bool { return c == name })
	}
	for name, c := range map[string]struct {
		asked *runtimeapi.Capability
		want  []string
	}{
		"none":             {nil, standard},
		"add":              {capability("net_admin", ""), append(slices.Clone(standard), "CAP_NET_ADMIN")},
		"drop":             {capability("", "CAP_KILL"), without(standard, "CAP_KILL")},
		"drop all":         {capability("", "all"), nil},
		"all but one":      {capability("ALL", "KILL"), without(all(), "CAP_KILL")},
		"one of all":       {capability("KILL", "ALL"), []string{"CAP_KILL"}},
		"both of the same": {capability("KILL", "KILL"), without(standard, "CAP_KILL")},
	} {
		got := slices.Sorted(slices.Values(specOf(t, withCapabilities(c.asked)).Process.Capabilities.Effective))
		if want := slices.Sorted(slices.Values(c.want)); !slices.Equal(got, want) {
			t.Errorf("%s: got %v, want %v", name, got, want)
		}
	}
	ambient := specOf(t, withCapabilities(&runtimeapi.Capability{
		AddCapabilities: []string{"NET_BIND_SERVICE"}, AddAmbientCapabilities: []string{"NET_BIND_SERVICE"},
	})).Process.Capabilities.Ambient
	if !slices.Equal(ambient, []string{"CAP_NET_BIND_SERVICE"}) {
		t.Errorf("ambient capabilities are %v", ambient)
	}
}

func TestCommand(t *testing.T) {
	img := &images.Usable{}
	img.Settings.Entrypoint, img.Settings.Cmd, img.Settings.WorkingDir = []string{"/entry"}, []string{"cmd"}, "/work"
	for name, c := range map[string]struct {
		config *runtimeapi.ContainerConfig
		want   string
	}{
		"image's own": {&runtimeapi.ContainerConfig{}, "/entry cmd /work"},
		"arguments":   {&runtimeapi.ContainerConfig{Args: []string{"a"}}, "/entry a /work"},
		"command":     {&runtimeapi.ContainerConfig{Command: []string{"c"}}, "c /work"},
		"both, and a path": {
			&runtimeapi.ContainerConfig{Command: []string{"c"}, Args: []string{"a"}, WorkingDir: "/x"}, "c a /x",
		},
	} {
		p := specOf(t, withProcess(c.config, img)).Process
		if got := strings.Join(append(slices.Clone(p.Args), p.Cwd), " "); got != c.want {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
	err := withProcess(&runtimeapi.ContainerConfig{}, &images.Usable{})(t.Context(), nil, nil, specOf(t))
	if !errdefs.IsInvalidArgument(err) {
		t.Errorf("no command at all: got %v", err)
	}
}

func TestMountsAreOrdered(t *testing.T) {
	spec := specOf(t, withMounts([]specs.Mount{
		{Destination: "/a/b/c", Source: "/1"}, {Destination: "/dev/shm", Source: "/2"}, {Destination: "/a", Source: "/3"},
	}, "rslave"))
	var order []string
	for _, m := range spec.Mounts {
		if strings.HasPrefix(m.Source, "/") {
			order = append(order, m.Destination)
		}
		if m.Destination == "/dev/shm" && m.Source != "/2" {
			t.Errorf("the default of %s is still there", m.Destination)
		}
	}
	if !slices.Equal(order, []string{"/a", "/dev/shm", "/a/b/c"}) || spec.Linux.RootfsPropagation != "rslave" {
		t.Errorf("the order is %v, the propagation %q", order, spec.Linux.RootfsPropagation)
	}
}

func TestBind(t *testing.T) {
	dir := t.TempDir()
	link := filepath.Join(dir, "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	ids := []*runtimeapi.IDMapping{{Length: 1}}
	for name, c := range map[string]struct {
		mount *runtimeapi.Mount
		want  string // the options; "" means an error
	}{
		"plain":           {&runtimeapi.Mount{HostPath: link}, "rbind rprivate rw"},
		"read-only":       {&runtimeapi.Mount{HostPath: dir, Readonly: true}, "rbind rprivate ro"},
		"recursively":     {&runtimeapi.Mount{HostPath: dir, Readonly: true, RecursiveReadOnly: true}, "rbind rprivate rro"},
		"only recursive":  {&runtimeapi.Mount{HostPath: dir, RecursiveReadOnly: true}, ""},
		"no such source":  {&runtimeapi.Mount{HostPath: filepath.Join(dir, "none")}, ""},
		"relative":        {&runtimeapi.Mount{ContainerPath: "x", HostPath: dir}, ""},
		"unknown":         {&runtimeapi.Mount{HostPath: dir, Propagation: 7}, ""},
		"with other ids":  {&runtimeapi.Mount{HostPath: dir, UidMappings: ids}, "rbind rprivate rw ridmap"},
		"recursive slave": {&runtimeapi.Mount{HostPath: dir, Readonly: true, RecursiveReadOnly: true, Propagation: 1}, ""},
	} {
		if c.mount.ContainerPath == "" {
			c.mount.ContainerPath = "/x"
		}
		got, err := bind(t.Context(), c.mount, nil)
		if c.want == "" {
			if err == nil {
				t.Errorf("%s: got %v, want an error", name, got)
			}
			continue
		}
		if err != nil || strings.Join(got.Options, " ") != c.want || got.Source != dir {
			t.Errorf("%s: got %v, %v, want %q", name, got, err, c.want)
		}
	}
}

func TestResolver(t *testing.T) {
	got, err := resolver(&runtimeapi.DNSConfig{
		Servers: []string{"10.0.0.10", "10.0.0.11"}, Searches: []string{"a.local", "b.local"}, Options: []string{"ndots:5"},
	})
	const want = "search a.local b.local\nnameserver 10.0.0.10\nnameserver 10.0.0.11\noptions ndots:5\n"
	if err != nil || string(got) != want {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
	node, err := os.ReadFile("/etc/resolv.conf")
	if err != nil {
		node = nil
	}
	if got, err := resolver(&runtimeapi.DNSConfig{}); err != nil || string(got) != string(node) {
		t.Errorf("without a wish: got %q, %v, want the node's %q", got, err, node)
	}
}

func TestNetworkWishes(t *testing.T) {
	got := capabilities(&runtimeapi.PodSandboxConfig{
		PortMappings: []*runtimeapi.PortMapping{
			{HostPort: 0, ContainerPort: 80},
			{HostPort: 53, ContainerPort: 5353, Protocol: runtimeapi.Protocol_UDP, HostIp: "1.2.3.4"},
		},
		Annotations: map[string]string{ingressAnnotation: "10M", egressAnnotation: "a lot"},
		Linux:       &runtimeapi.LinuxPodSandboxConfig{CgroupParent: "/kubepods/pod1"},
	})
	if len(got.PortMappings) != 1 ||
		got.PortMappings[0] != (cni.PortMapping{HostPort: 53, ContainerPort: 5353, Protocol: "udp", HostIP: "1.2.3.4"}) {
		t.Errorf("port mappings are %v", got.PortMappings)
	}
	if got.Bandwidth == nil || *got.Bandwidth != (cni.Bandwidth{IngressRate: 10_000_000, IngressBurst: burst}) {
		t.Errorf("bandwidth is %v", got.Bandwidth)
	}
	if got.CgroupPath != "/kubepods/pod1" || got.Annotations[ingressAnnotation] != "10M" {
		t.Errorf("the cgroup is %q, the annotations are %v", got.CgroupPath, got.Annotations)
	}
	if got := capabilities(&runtimeapi.PodSandboxConfig{}); got.Bandwidth != nil || got.DNS != nil {
		t.Errorf("without a wish: got %v", got)
	}
}

func TestStopSignal(t *testing.T) {
	for _, c := range []struct {
		asked       runtimeapi.Signal
		image, want string
	}{
		{runtimeapi.Signal_RUNTIME_DEFAULT, "", "SIGTERM"},
		{runtimeapi.Signal_RUNTIME_DEFAULT, "SIGQUIT", "SIGQUIT"},
		{runtimeapi.Signal_RUNTIME_DEFAULT, "9", "9"},
		{runtimeapi.Signal_SIGUSR1, "SIGQUIT", "SIGUSR1"},
		{runtimeapi.Signal_RUNTIME_DEFAULT, "SIGNONSENSE", ""},
	} {
		got, err := stopSignal(c.asked, c.image)
		if got != c.want || (err != nil) != (c.want == "") {
			t.Errorf("%v and %q: got %q, %v, want %q", c.asked, c.image, got, err, c.want)
		}
	}
	if got := signalOf("TERM"); got != runtimeapi.Signal_SIGTERM {
		t.Errorf("TERM is %v", got)
	}
}

func TestLimits(t *testing.T) {
	old := &runtimeapi.LinuxContainerResources{CpuShares: 100, MemoryLimitInBytes: 1 << 20, CpusetCpus: "0"}
	merged := merge(old, &runtimeapi.LinuxContainerResources{MemoryLimitInBytes: 2 << 20, CpuQuota: -1})
	if merged.CpuShares != 100 || merged.MemoryLimitInBytes != 2<<20 || merged.CpuQuota != -1 || old.CpuQuota != 0 {
		t.Errorf("merged are %v, the old ones %v", merged, old)
	}
	got := resources(merged)
	if *got.CPU.Shares != 100 || *got.CPU.Quota != -1 || got.CPU.Period != nil || *got.Memory.Limit != 2<<20 ||
		got.Memory.Swap != nil || got.CPU.Cpus != "0" {
		t.Errorf("in the spec they are %+v", got)
	}
	if got := merge(nil, nil); got == nil {
		t.Error("no limits are nil")
	}
	if again := merge(nil, reported(got)); !proto.Equal(again, merged) {
		t.Errorf("reported are %v, want %v", again, merged)
	}
}

// An update keeps what it does not name, such as what an NRI plugin has set.
func TestOverlay(t *testing.T) {
	limits := &specs.LinuxResources{
		Devices: []specs.LinuxDeviceCgroup{{Access: "rwm"}}, Pids: &specs.LinuxPids{Limit: new(int64(77))},
		CPU: &specs.LinuxCPU{Shares: new(uint64(100)), Cpus: "1"}, Unified: map[string]string{"a": "1", "b": "1"},
		HugepageLimits: []specs.LinuxHugepageLimit{{Pagesize: "2MB", Limit: 1}, {Pagesize: "1GB", Limit: 1}},
	}
	more := &specs.LinuxResources{
		CPU: &specs.LinuxCPU{Quota: new(int64(-1))}, Memory: &specs.LinuxMemory{Limit: new(int64(1 << 20))},
		Unified: map[string]string{"b": "2"}, HugepageLimits: []specs.LinuxHugepageLimit{{Pagesize: "2MB"}},
	}
	if err := overlay(limits, more); err != nil {
		t.Fatal(err)
	}
	want := &specs.LinuxResources{
		Devices: []specs.LinuxDeviceCgroup{{Access: "rwm"}}, Pids: &specs.LinuxPids{Limit: new(int64(77))},
		CPU:     &specs.LinuxCPU{Shares: new(uint64(100)), Cpus: "1", Quota: new(int64(-1))},
		Memory:  &specs.LinuxMemory{Limit: new(int64(1 << 20))},
		Unified: map[string]string{"a": "1", "b": "2"}, HugepageLimits: []specs.LinuxHugepageLimit{{Pagesize: "2MB"}},
	}
	if !reflect.DeepEqual(limits, want) {
		t.Errorf("the limits are %+v, want %+v", limits, want)
	}
}

func TestCgroupPaths(t *testing.T) {
	for _, c := range []struct {
		systemd      bool
		parent, want string
	}{
		{false, "/kubepods/pod1", "/kubepods/pod1/a"},
		{false, "", "/berth/a"},
		{true, "/kubepods.slice/kubepods-pod1.slice", "kubepods-pod1.slice:berth:a"},
		{true, "", "system.slice:berth:a"},
		{true, "/", "system.slice:berth:a"},
	} {
		r := &Runtime{cfg: Config{SystemdCgroups: c.systemd, Namespace: "berth"}}
		if got := r.cgroup(c.parent, "a"); got != c.want {
			t.Errorf("below %q it is %q, want %q", c.parent, got, c.want)
		}
	}
}

func TestSeccompProfiles(t *testing.T) {
	path := filepath.Join(t.TempDir(), "profile.json")
	for name, c := range map[string]struct {
		content string // of the profile; "" for none
		good    bool
	}{"good": {`{"defaultAction":"SCMP_ACT_LOG"}`, true}, "rubbish": {"{", false}, "missing": {"", false}} {
		_ = os.Remove(path)
		if c.content != "" {
			if err := os.WriteFile(path, []byte(c.content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		asked := &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Localhost, LocalhostRef: path}
		got, err := seccompProfile(asked, specOf(t))
		if c.good && (err != nil || got.DefaultAction != specs.ActLog) ||
			!c.good && (!errdefs.IsInvalidArgument(err) || !strings.Contains(err.Error(), path)) {
			t.Errorf("%s: got %v, %v", name, got, err)
		}
	}
	if got, err := seccompProfile(nil, specOf(t)); got != nil || err != nil {
		t.Errorf("without a wish: got %v, %v", got, err)
	}
}

func TestRecords(t *testing.T) {
	dir := t.TempDir()
	kept, err := openRecords[*sandboxRecord](dir)
	if err != nil {
		t.Fatal(err)
	}
	config := &runtimeapi.PodSandboxConfig{Hostname: "web", Labels: map[string]string{"a": "b"}}
	want := &sandboxRecord{ID: "a", Config: message[*runtimeapi.PodSandboxConfig]{config}, CreatedAt: 5, Up: true}
	if err := kept.save("a", want); err != nil {
		t.Fatal(err)
	}
	all, err := kept.all()
	if err != nil || len(all) != 1 {
		t.Fatalf("got %v, %v", all, err)
	}
	if got := all[0]; got.Config.of.GetHostname() != "web" || got.Config.of.GetLabels()["a"] != "b" ||
		got.CreatedAt != 5 || !got.Up {
		t.Errorf("got %v", got)
	}
	for range 2 {
		if err := kept.remove("a"); err != nil {
			t.Error(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "bad.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := kept.all(); err == nil || !strings.Contains(err.Error(), "bad.json") {
		t.Errorf("a broken record: got %v, want its file", err)
	}
}

func TestOneRuntimeForADirectory(t *testing.T) {
	dir := t.TempDir()
	first, err := newStore(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := newStore(dir); err == nil || !strings.Contains(err.Error(), dir) {
		t.Errorf("a second one: got %v, want the directory", err)
	}
	if err := flock.Release(first.lock); err != nil {
		t.Fatal(err)
	}
	if _, err := newStore(dir); err != nil {
		t.Errorf("after the first one's end: %v", err)
	}
}

func TestOutputsShareTheRoom(t *testing.T) {
	shared := &room{left: 5}
	one, two := &limitedBuffer{room: shared}, &limitedBuffer{room: shared}
	for _, b := range []*limitedBuffer{one, two, one} {
		if n, err := b.Write([]byte("abc")); n != 3 || err != nil {
			t.Errorf("got %d, %v", n, err)
		}
	}
	if string(one.kept) != "abc" || string(two.kept) != "ab" {
		t.Errorf("kept are %q and %q", one.kept, two.kept)
	}
}

func TestTurn(t *testing.T) {
	one := newTurn()
	if err := one.take(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := one.take(ctx); err == nil {
		t.Error("two have the turn")
	}
	one.give()
	if err := one.take(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestHowContainersEnd(t *testing.T) {
	at := time.Unix(5, 0)
	for want, e := range map[string]struct {
		exit
		oom bool
	}{
		reasonCompleted: {exit{at: at}, false}, reasonError: {exit{code: 3, at: at}, false},
		reasonOOM: {exit{code: 137, at: at}, true}, reasonUnknown: {exit{code: 255, at: at, lost: true}, false},
	} {
		rec := containerRecord{StartedAt: at.UnixNano() + 7}
		rec.finish(e.exit, e.oom)
		if rec.Reason != want || rec.ExitCode != e.code || rec.FinishedAt != rec.StartedAt ||
			rec.state() != runtimeapi.ContainerState_CONTAINER_EXITED {
			t.Errorf("got %+v, want %s", rec, want)
		}
	}
}

func TestOOMKills(t *testing.T) {
	path := filepath.Join(t.TempDir(), "memory.events")
	for content, want := range map[string]uint64{
		"low 0\noom 3\noom_kill 2\n": 2, "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n": 1, "": 0, "oom_kill x\n": 0,
	} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := oomKills(path); got != want {
			t.Errorf("%q: got %d, want %d", content, got, want)
		}
	}
	if got := oomKills(path + "-gone"); got != 0 {
		t.Errorf("without a file: got %d", got)
	}
}

// Others than root cannot reach the shared memory of pods.
func TestKeepPrivate(t *testing.T) {
	there := t.TempDir()
	if err := os.Chmod(there, 0o777); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{there, filepath.Join(there, "a", "b")} {
		if err := keepPrivate(dir); err != nil {
			t.Fatal(err)
		}
		if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
			t.Errorf("%s: %v, %v", dir, info.Mode(), err)
		}
	}
	if err := errors.Join(os.Chmod(there, 0o755), keepPrivate(there)); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(there); err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("a directory of others: %v, %v", info.Mode(), err)
	}
}

func TestPauseMode(t *testing.T) {
	network, err := cni.New(cni.Config{ConfDir: t.TempDir(), StateDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	_, err = New(t.Context(), Config{
		Containerd: "/nowhere", Namespace: "x", PauseImage: "pause", RootDir: t.TempDir(), StateDir: t.TempDir(),
		Network: network, Pause: "sometimes",
	})
	if err == nil || !strings.Contains(err.Error(), "sometimes") {
		t.Errorf("got %v", err)
	}
}
