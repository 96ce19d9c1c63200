package nri

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/stub"
	"github.com/opencontainers/runtime-spec/specs-go"
)

// host notes what plugins want.
type host struct {
	mu    sync.Mutex
	notes []string
}

func (h *host) note(text string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.notes = append(h.notes, text)
}

func (h *host) has(text string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Contains(h.notes, text)
}

func (h *host) UpdateResources(
	_ context.Context, id string, limits *api.LinuxResources,
) (*api.LinuxResources, error) {
	h.note("update " + id + " cpus " + limits.GetCpu().GetCpus())
	if id == "gone" {
		return nil, errors.New("it is gone")
	}
	return limits, nil
}

// plugin is a plugin that notes what it is told, refuses what is named "bad", and gives each
// container the CPU 1 and a variable.
type plugin struct {
	host
	wanted []*api.ContainerUpdate // with each answer about a container
	agrees bool                   // it refuses nothing, and leaves limits as they are asked
	index  string                 // "10" if empty
	// meanwhile is called while it is told of what there is.
	meanwhile func()
}

func (p *plugin) want(updates ...*api.ContainerUpdate) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.wanted = updates
}

func (p *plugin) wants() []*api.ContainerUpdate {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.wanted
}

// told returns what it was told, but for the pod of [rig.connect].
func (p *plugin) told() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(p.notes), func(s string) bool { return strings.HasSuffix(s, " first") })
}

func (p *plugin) refuses(name string) error {
	if name == "bad" && !p.agrees {
		return errors.New("not here")
	}
	return nil
}

func (p *plugin) Synchronize(
	_ context.Context, pods []*api.PodSandbox, containers []*api.Container,
) ([]*api.ContainerUpdate, error) {
	for _, pod := range pods {
		p.note("knows pod " + pod.GetName())
	}
	if p.meanwhile != nil {
		p.meanwhile()
	}
	for _, c := range containers {
		p.note("knows container " + c.GetName())
	}
	return p.wants(), nil
}

func (p *plugin) RunPodSandbox(_ context.Context, pod *api.PodSandbox) error {
	p.note("run " + pod.GetName())
	return p.refuses(pod.GetName())
}

func (p *plugin) StopPodSandbox(_ context.Context, pod *api.PodSandbox) error {
	p.note("stop pod " + pod.GetName())
	return nil
}

func (p *plugin) RemovePodSandbox(_ context.Context, pod *api.PodSandbox) error {
	p.note("remove pod " + pod.GetName())
	return nil
}

func (p *plugin) CreateContainer(
	_ context.Context, pod *api.PodSandbox, c *api.Container,
) (*api.ContainerAdjustment, []*api.ContainerUpdate, error) {
	p.note("create " + pod.GetName() + "/" + c.GetName())
	a := &api.ContainerAdjustment{}
	a.AddEnv("PLUGIN", "was here")
	a.AddMount(&api.Mount{Destination: "/plugin", Type: "bind", Source: "/srv", Options: []string{"ro", "bind"}})
	a.SetLinuxCPUSetCPUs("1")
	a.SetLinuxMemoryLimit(1 << 20)
	return a, p.wants(), p.refuses(c.GetName())
}

func (p *plugin) PostCreateContainer(_ context.Context, _ *api.PodSandbox, c *api.Container) error {
	p.note("created " + c.GetName() + " " + strings.Join(c.GetEnv(), " "))
	return nil
}

func (p *plugin) StartContainer(_ context.Context, _ *api.PodSandbox, c *api.Container) error {
	p.note("start " + c.GetName())
	return p.refuses(c.GetName())
}

func (p *plugin) PostStartContainer(_ context.Context, _ *api.PodSandbox, c *api.Container) error {
	p.note("started " + c.GetName() + " " + c.GetState().String())
	return nil
}

func (p *plugin) UpdateContainer(
	_ context.Context, _ *api.PodSandbox, c *api.Container, _ *api.LinuxResources,
) ([]*api.ContainerUpdate, error) {
	u := &api.ContainerUpdate{ContainerId: c.GetId()}
	if !p.agrees {
		u.SetLinuxCPUSetCPUs("0")
	}
	return append([]*api.ContainerUpdate{u}, p.wants()...), nil
}

func (p *plugin) PostUpdateContainer(_ context.Context, _ *api.PodSandbox, c *api.Container) error {
	p.note("updated " + c.GetName() + " cpus " + c.GetLinux().GetResources().GetCpu().GetCpus())
	return nil
}

func (p *plugin) StopContainer(
	_ context.Context, _ *api.PodSandbox, c *api.Container,
) ([]*api.ContainerUpdate, error) {
	p.note("stop " + c.GetName())
	return p.wants(), nil
}

func (p *plugin) RemoveContainer(_ context.Context, _ *api.PodSandbox, c *api.Container) error {
	p.note("remove " + c.GetName())
	return nil
}

// rig has plugins of a runtime.
type rig struct {
	*Plugins
	host   host
	socket string
}

func newRig(t *testing.T, pods []*api.PodSandbox, containers []*api.Container) *rig {
	t.Helper()
	dir := t.TempDir()
	r := &rig{socket: filepath.Join(dir, "nri.sock")}
	var err error
	r.Plugins, err = New(Config{Socket: r.socket, PluginDir: filepath.Join(dir, "plugins"), ConfigDir: dir}, "v1",
		&r.host, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	r.StopContainer(t.Context(), "c", 0, 0) // before the start, nobody is told of anything
	if err := r.Start(t.Context(), pods, containers); err != nil {
		t.Fatal(err)
	}
	return r
}

// connect connects a plugin, and returns when it is told of things.
func (r *rig) connect(t *testing.T, p *plugin, options ...stub.Option) (disconnect func()) {
	t.Helper()
	options = append(options, stub.WithPluginName("test"), stub.WithPluginIdx(cmp.Or(p.index, "10")),
		stub.WithSocketPath(r.socket), stub.WithOnClose(func() {}))
	s, err := stub.New(p, options...)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	eventually(t, "the plugin to be told", func() bool {
		if err := r.RunPodSandbox(t.Context(), &api.PodSandbox{Id: "first", Name: "first"}); err != nil {
			t.Fatal(err)
		}
		return p.has("run first")
	})
	return s.Stop
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waiting for %s", what)
		}
	}
}

func spec() *specs.Spec {
	return &specs.Spec{
		Process: &specs.Process{Env: []string{"A=a"}}, Mounts: []specs.Mount{{Destination: "/proc", Type: "proc"}},
		Linux: &specs.Linux{Resources: &specs.LinuxResources{}},
	}
}

// A pod's life with a plugin: it is told of each step, and what it wants of the container's spec,
// of its limits, and of other containers is done.
func TestLifeWithPlugin(t *testing.T) {
	r := newRig(t, nil, nil)
	p := &plugin{}
	r.connect(t, p)
	ctx := t.Context()
	if err := r.RunPodSandbox(ctx, &api.PodSandbox{Id: "p", Name: "web"}); err != nil {
		t.Fatal(err)
	}
	other := &api.ContainerUpdate{ContainerId: "other"}
	other.SetLinuxCPUSetCPUs("0")
	gone := &api.ContainerUpdate{ContainerId: "gone"}
	gone.SetLinuxCPUSetCPUs("0")
	p.want(gone, other)
	s, checked := spec(), false
	err := r.CreateContainer(ctx, &api.Container{Id: "c", PodSandboxId: "p", Name: "main", Env: s.Process.Env}, s, Rules{
		CheckResources: func(l *specs.LinuxResources) error { checked, l.Memory.Swap = true, nil; return nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(s.Process.Env, " "); got != "A=a PLUGIN=was here" || len(s.Mounts) != 2 ||
		s.Linux.Resources.CPU.Cpus != "1" || *s.Linux.Resources.Memory.Limit != 1<<20 ||
		s.Linux.Resources.Memory.Swap != nil || !checked {
		t.Errorf("the spec has %q, %v, %+v", got, s.Mounts, s.Linux.Resources)
	}
	eventually(t, "the other container's limits", func() bool { return r.host.has("update other cpus 0") })
	p.want()
	r.PostCreateContainer(ctx, "c", func(c *api.Container) { c.Env, c.Linux = s.Process.Env, &api.LinuxContainer{} })
	if err := r.StartContainer(ctx, "c", 42); err != nil {
		t.Error(err)
	}
	r.PostStartContainer(ctx, "c", 1)
	limits, err := r.UpdateContainer(ctx, "c", &api.LinuxResources{Cpu: &api.LinuxCPU{Cpus: "3"}})
	if err != nil || limits.GetCpu().GetCpus() != "0" {
		t.Errorf("the limits are %v, %v", limits, err)
	}
	r.PostUpdateContainer(ctx, "c", limits)
	r.StopContainer(ctx, "c", 3, 2)
	r.RemoveContainer(ctx, "c")
	r.RemoveContainer(ctx, "c") // of which nobody is told
	r.StopPodSandbox(ctx, "p")
	r.RemovePodSandbox(ctx, "p")
	r.RemovePodSandbox(ctx, "p")
	want := []string{
		"run web", "create web/main", "created main A=a PLUGIN=was here", "start main",
		"started main CONTAINER_RUNNING", "updated main cpus 0", "stop main", "remove main", "stop pod web", "remove pod web",
	}
	if got := p.told(); !slices.Equal(got, want) {
		t.Errorf("the plugin was told\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// What a plugin refuses is not done, and the plugins that were asked before it are told so.
func TestRefusals(t *testing.T) {
	r := newRig(t, nil, nil)
	r.connect(t, &plugin{})
	before := &plugin{agrees: true, index: "05"}
	r.connect(t, before)
	ctx := t.Context()
	if err := r.RunPodSandbox(ctx, &api.PodSandbox{Id: "b", Name: "bad"}); err == nil ||
		!strings.Contains(err.Error(), "not here") {
		t.Errorf("the sandbox: %v", err)
	}
	bad := &api.Container{Id: "b", PodSandboxId: "first", Name: "bad"}
	if err := r.CreateContainer(ctx, bad, spec(), Rules{}); err == nil ||
		!strings.Contains(err.Error(), "not here") {
		t.Errorf("the container: %v", err)
	}
	r.RemoveContainer(ctx, "b") // of which plugins are not told: they know
	if err := r.StartContainer(ctx, "b", 1); err != nil {
		t.Errorf("a container that nobody was told of: %v", err)
	}
	want := []string{"run bad", "stop pod bad", "remove pod bad", "create first/bad", "remove bad"}
	if got := before.told(); !slices.Equal(got, want) {
		t.Errorf("the plugin before was told %q, want %q", got, want)
	}
}

// What happens while a plugin is told of everything is told to it afterwards, and what has ended is
// not told.
func TestStepsBesideSynchronize(t *testing.T) {
	there := []*api.Container{{Id: "c", PodSandboxId: "p", Name: "main"}, {Id: "d", PodSandboxId: "p", Name: "ended"}}
	r := newRig(t, []*api.PodSandbox{{Id: "p", Name: "web"}}, there)
	r.StopContainer(t.Context(), "d", 0, 1)
	var stops sync.WaitGroup
	p := &plugin{meanwhile: func() {
		stops.Go(func() { r.StopContainer(context.Background(), "c", 0, 1) })
	}}
	r.connect(t, p)
	stops.Wait()
	r.StopContainer(t.Context(), "c", 0, 1) // of which nobody is told again
	want := []string{"knows pod web", "knows container main", "stop main"}
	if got := p.told(); !slices.Equal(got, want) {
		t.Errorf("the plugin was told %q, want %q", got, want)
	}
}

// A plugin that wants no other limits leaves those that are asked for, and a later update of a
// container takes the place of what plugins wanted of it before.
func TestLimitsAsAsked(t *testing.T) {
	r := newRig(t, []*api.PodSandbox{{Id: "p"}}, []*api.Container{{Id: "c", PodSandboxId: "p"}})
	r.connect(t, &plugin{agrees: true})
	asked := &api.LinuxResources{Cpu: &api.LinuxCPU{Cpus: "3"}}
	if limits, err := r.UpdateContainer(t.Context(), "c", asked); err != nil || limits.GetCpu().GetCpus() != "3" {
		t.Errorf("the limits are %v, %v", limits, err)
	}
	r.mu.Lock()
	r.wanted = []*api.ContainerUpdate{{ContainerId: "c"}, {ContainerId: "d"}}
	r.mu.Unlock()
	if _, err := r.UpdateContainer(t.Context(), "c", asked); err != nil {
		t.Fatal(err)
	}
	if u := r.next(); u.GetContainerId() != "d" || r.next() != nil {
		t.Errorf("still wanted is %v", u)
	}
}

// Nobody but root can make a plugin, or connect as one, and the place of others is not taken.
func TestOnlyRoot(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(t *testing.T, cfg Config)
		want  string
	}{
		"all is well":           {func(*testing.T, Config) {}, ""},
		"a plugin of everybody": {func(t *testing.T, cfg Config) { mode(t, cfg.PluginDir+"/10-a", 0o666) }, "chmod go-w"},
		"plugins of a group":    {func(t *testing.T, cfg Config) { mode(t, cfg.PluginDir, 0o775) }, "chmod go-w"},
		"the directory above":   {func(t *testing.T, cfg Config) { mode(t, filepath.Dir(cfg.PluginDir), 0o777) }, "is above"},
		"a sticky one above": {func(t *testing.T, cfg Config) {
			mode(t, filepath.Dir(cfg.PluginDir), 0o777|fs.ModeSticky)
		}, ""},
		"another's config": {func(t *testing.T, cfg Config) {
			if err := os.Chown(cfg.ConfigDir, 1234, 0); err != nil {
				t.Skip("changing an owner needs root")
			}
		}, "chown root"},
		"a file in place": {func(t *testing.T, cfg Config) { makeFile(t, cfg.Socket) }, "no socket"},
		"another's socket": {func(t *testing.T, cfg Config) {
			l, err := net.Listen("unix", cfg.Socket)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { l.Close() })
		}, "another process"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "x")
			cfg := Config{Socket: dir + "/run/s", PluginDir: dir + "/plugins", ConfigDir: dir + "/conf"}
			for _, d := range []string{filepath.Dir(cfg.Socket), cfg.PluginDir, cfg.ConfigDir} {
				if err := os.MkdirAll(d, 0o755); err != nil {
					t.Fatal(err)
				}
			}
			makeFile(t, cfg.PluginDir+"/10-a") // which cannot be run, and is none
			c.spoil(t, cfg)
			p, err := New(cfg, "v1", &host{}, slog.New(slog.DiscardHandler))
			if err != nil {
				t.Fatal(err)
			}
			err = p.Start(t.Context(), nil, nil)
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("the start: %v, want %q", err, c.want)
			}
			if info, e := os.Lstat(cfg.Socket); err == nil && (e != nil || info.Mode() != fs.ModeSocket|0o600) {
				t.Errorf("the socket is %v, %v", info, e)
			}
			p.Close()
			if left, _ := os.ReadDir(filepath.Dir(cfg.Socket)); err == nil && len(left) > 0 {
				t.Errorf("left are %v", left)
			}
		})
	}
}

func makeFile(t *testing.T, path string) {
	t.Helper()
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

func mode(t *testing.T, path string, mode fs.FileMode) {
	t.Helper()
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
}

// deaf is a connection on which nothing is read any more once it is deaf.
type deaf struct {
	net.Conn
	on, closed chan struct{}
}

func (d *deaf) Read(p []byte) (int, error) {
	select {
	case <-d.on:
		<-d.closed
		return 0, io.EOF
	default:
		return d.Conn.Read(p)
	}
}

// A plugin that reads nothing is disconnected, and holds up no pod for longer.
func TestDeafPlugin(t *testing.T) {
	t.Run("by default", func(t *testing.T) { isDropped(t) })
	t.Run("which is to be kept", func(t *testing.T) {
		isDropped(t, stub.WithFailurePolicy(&api.FailurePolicy{KeepConnected: true}))
	})
}

func isDropped(t *testing.T, options ...stub.Option) {
	t.Helper()
	r := newRig(t, nil, nil)
	conn, err := net.Dial("unix", r.socket)
	if err != nil {
		t.Fatal(err)
	}
	d := &deaf{Conn: conn, on: make(chan struct{}), closed: make(chan struct{})}
	defer close(d.closed)
	r.connect(t, &plugin{}, append(options, stub.WithConnection(d))...)
	close(d.on)
	large := map[string]string{"large": strings.Repeat("x", 3<<20)}
	for i := range 3 {
		done := make(chan error, 1)
		go func() {
			done <- r.RunPodSandbox(context.Background(), &api.PodSandbox{Id: fmt.Sprint(i), Name: "web", Annotations: large})
		}()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("pod %d: %v", i, err)
			}
		case <-time.After(time.Minute):
			t.Fatalf("pod %d waits for a plugin that reads nothing", i)
		}
	}
	_ = conn.SetReadDeadline(time.Now().Add(time.Minute))
	if _, err := io.Copy(io.Discard, conn); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("it is still connected")
	}
}

// What plugins want of a container is not written into what the caller has.
func TestRequestsAreCopies(t *testing.T) {
	r := newRig(t, nil, nil)
	r.connect(t, &plugin{})
	c := &api.Container{Id: "c", PodSandboxId: "first", Name: "main", Env: append(make([]string, 0, 8), "A=a")}
	if err := r.CreateContainer(t.Context(), c, spec(), Rules{}); err != nil {
		t.Fatal(err)
	}
	if got := c.GetEnv(); len(got) != 1 || got[:2][1] != "" || c.GetLinux() != nil {
		t.Errorf("the caller has %q, %v", got[:2], c.GetLinux())
	}
}

// A plugin that connects late is told of what there is, and one that ends holds up nothing.
func TestPluginsComeAndGo(t *testing.T) {
	r := newRig(t, []*api.PodSandbox{{Id: "p", Name: "web"}}, []*api.Container{{Id: "c", PodSandboxId: "p", Name: "main"}})
	other := &api.ContainerUpdate{ContainerId: "c"}
	other.SetLinuxCPUSetCPUs("1")
	p := &plugin{wanted: []*api.ContainerUpdate{other}}
	disconnect := r.connect(t, p)
	if !p.has("knows pod web") || !p.has("knows container main") {
		t.Errorf("it knows %q", p.told())
	}
	eventually(t, "what it wants at once", func() bool { return r.host.has("update c cpus 1") })
	disconnect()
	if err := r.RunPodSandbox(t.Context(), &api.PodSandbox{Id: "q", Name: "next"}); err != nil {
		t.Error(err)
	}
	again := &plugin{}
	r.connect(t, again)
	if !again.has("knows pod next") {
		t.Errorf("the next one knows %q", again.told())
	}
}

// Without plugins everything succeeds.
func TestNoPlugins(t *testing.T) {
	var p *Plugins
	ctx := t.Context()
	limits := &api.LinuxResources{}
	got, err := p.UpdateContainer(ctx, "c", limits)
	if err := errors.Join(err, p.RunPodSandbox(ctx, nil), p.CreateContainer(ctx, nil, nil, Rules{}),
		p.StartContainer(ctx, "c", 1)); err != nil || got != limits {
		t.Errorf("%v, %v", got, err)
	}
	p.PostCreateContainer(ctx, "c", nil)
	p.PostStartContainer(ctx, "c", 0)
	p.PostUpdateContainer(ctx, "c", nil)
	p.StopContainer(ctx, "c", 0, 0)
	p.RemoveContainer(ctx, "c")
	p.StopPodSandbox(ctx, "p")
	p.RemovePodSandbox(ctx, "p")
	p.Close()
}
