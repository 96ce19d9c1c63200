package runtimes

import (
	"context"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berthd/berth/configs"
	"github.com/berthd/berth/cri/fake"
	"github.com/berthd/berth/cri/serve"
)

const (
	viaCRI    = configs.RuntimeRemote
	inProcess = configs.RuntimeNative
)

// machine is a machine with up to two sockets.
type machine struct {
	cfg *configs.Config
	// plugin is the runtime behind the CRI socket.
	plugin *fake.Runtime
}

// newMachine returns a machine whose CRI socket is not there.
func newMachine(t *testing.T, kind configs.RuntimeKind) *machine {
	t.Helper()
	dir := t.TempDir()
	cfg, _, err := configs.Load(configs.Options{DropInDir: dir})
	if err != nil {
		t.Fatal(err)
	}
	cfg.RootDir = filepath.Join(dir, "root")
	cfg.Berth.Runtime = kind
	cfg.Kubelet.ContainerRuntimeEndpoint = "unix://" + filepath.Join(dir, "c.sock")
	cfg.Berth.CNI.ConfDir = filepath.Join(dir, "net.d")
	if err := os.Mkdir(cfg.Berth.CNI.ConfDir, 0o700); err != nil {
		t.Fatal(err)
	}
	return &machine{cfg: cfg, plugin: fake.New(fake.Config{})}
}

// withPlugin makes the CRI answer at the CRI socket.
func withPlugin(t *testing.T, m *machine) {
	t.Helper()
	stop, err := serve.Start(t.Context(), Address(m.cfg), m.plugin)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
}

// withoutPlugin makes a containerd answer at the CRI socket that has no CRI.
func withoutPlugin(t *testing.T, m *machine) {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", Address(m.cfg))
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	done := make(chan struct{})
	go func() { defer close(done); _ = server.Serve(l) }()
	t.Cleanup(func() { server.Stop(); <-done })
}

// withPod makes a pod by the CRI socket.
func withPod(t *testing.T, m *machine) {
	t.Helper()
	_, err := m.plugin.RunPodSandbox(t.Context(), &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{Name: "old", Namespace: "default", Uid: "u"},
	}, "")
	if err != nil {
		t.Fatal(err)
	}
}

// noted notes that runtimes may have pods.
func noted(kinds ...configs.RuntimeKind) func(*testing.T, *machine) {
	return func(t *testing.T, m *machine) {
		t.Helper()
		if err := (notes{Kinds: kinds}).write(m.cfg.RootDir); err != nil {
			t.Fatal(err)
		}
	}
}

// open opens the machine's runtime.
func (m *machine) open(t *testing.T) *Runtime {
	t.Helper()
	r, err := Open(t.Context(), m.cfg, Deps{Logger: slog.New(slog.NewTextHandler(t.Output(), nil))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return r
}

// have returns what a machine has.
func have(steps ...func(*testing.T, *machine)) []func(*testing.T, *machine) { return steps }

// kinds returns runtimes in the order of notes.
func kinds(k ...configs.RuntimeKind) []configs.RuntimeKind { return k }

func TestChoice(t *testing.T) {
	for name, c := range map[string]struct {
		kind configs.RuntimeKind
		have []func(*testing.T, *machine)
		// first is the runtime that answers, empty if none does; sandboxes is how many it lists.
		first     string
		sandboxes int
		noted     []configs.RuntimeKind
	}{
		"remote":               {viaCRI, have(withPlugin), "fake", 0, kinds(viaCRI)},
		"remote waits":         {viaCRI, nil, "", 0, kinds(viaCRI)},
		"remote has no CRI":    {viaCRI, have(withoutPlugin), "", 0, kinds(viaCRI)},
		"auto takes a CRI":     {configs.RuntimeAuto, have(withPlugin), "fake", 0, kinds(viaCRI)},
		"auto without a CRI":   {configs.RuntimeAuto, have(withoutPlugin), "berth", 0, kinds(inProcess)},
		"auto waits":           {configs.RuntimeAuto, nil, "", 0, nil},
		"native":               {inProcess, have(withoutPlugin), "berth", 0, kinds(inProcess)},
		"native beside a CRI":  {inProcess, have(withPlugin), "berth", 0, kinds(inProcess)},
		"native waits":         {inProcess, nil, "", 0, nil},
		"native after a CRI":   {inProcess, have(withPod, withPlugin), "berth", 1, kinds(inProcess, viaCRI)},
		"native stays":         {inProcess, have(withPod, withPlugin, noted(inProcess)), "berth", 0, kinds(inProcess)},
		"auto moves to a CRI":  {configs.RuntimeAuto, have(withPlugin, noted(inProcess)), "fake", 0, kinds(viaCRI)},
		"pods of a silent CRI": {inProcess, have(noted(viaCRI)), "", 0, kinds(viaCRI)},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t, c.kind)
			for _, step := range c.have {
				step(t, m)
			}
			r := m.open(t)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			v, err := r.Version(ctx)
			// The native runtime asks containerd, and what is there has none of containerd's services.
			if errdefs.IsNotImplemented(err) && strings.Contains(err.Error(), "containerd.services.version") {
				v, err = &runtimeapi.VersionResponse{RuntimeName: "berth"}, nil
			}
			if got := v.GetRuntimeName(); got != c.first || (err == nil) != (got != "") {
				t.Fatalf("the runtime is %q, %v", got, err)
			}
			if err != nil && !errdefs.IsUnavailable(err) && !errdefs.IsNotImplemented(err) {
				t.Errorf("the error has no class: %v", err)
			}
			if err == nil {
				if list, err := r.ListPodSandbox(ctx, nil); err != nil || len(list) != c.sandboxes {
					t.Errorf("the sandboxes are %v, %v", list, err)
				}
			}
			if known, err := readNotes(m.cfg.RootDir); err != nil || !slices.Equal(known.Kinds, c.noted) {
				t.Errorf("noted is %v, %v", known, err)
			}
		})
	}
}

// A native runtime with pods stays where they are, whatever the config says, and one without pods
// goes where the config wants it.
func TestPlace(t *testing.T) {
	m := newMachine(t, inProcess)
	withoutPlugin(t, m)
	r := m.open(t)
	before := place{Address: "/run/old.sock", Namespace: "old"}
	known := notes{Kinds: []configs.RuntimeKind{inProcess}, Native: before}
	if got := r.place(known); got.Namespace != Namespace(m.cfg) || got.Address != Address(m.cfg) {
		t.Errorf("without pods it is at %v", got)
	}
	records := filepath.Join(nativeHome(m.cfg.RootDir), "root", "sandboxes")
	if err := os.MkdirAll(records, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(records, "x.json"), []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := r.place(known); got != before {
		t.Errorf("with a pod it is at %v", got)
	}
}

func TestNamespace(t *testing.T) {
	m := newMachine(t, inProcess)
	own := Namespace(m.cfg)
	m.cfg.RootDir += "2"
	other := Namespace(m.cfg)
	m.cfg.RootDir = defaultRoot + "/"
	usual := Namespace(m.cfg)
	m.cfg.Berth.Containerd.Namespace = "mine"
	if given := Namespace(m.cfg); own == other || own == usual || usual != "berth" || given != "mine" {
		t.Errorf("the namespaces are %s, %s, %s and %s", own, other, usual, given)
	}
}

// The agent gives a silent registry up before the native runtime does: only the agent says how far
// the pull came.
func TestTheAgentEndsStalledPulls(t *testing.T) {
	m := newMachine(t, inProcess)
	for _, timeout := range []time.Duration{time.Second, time.Hour} {
		m.cfg.Berth.ImagePullStallTimeout.Duration = timeout
		got, err := nativeConfig(m.cfg, place{})
		if err != nil || got.Images.Stall <= timeout {
			t.Errorf("with a stall timeout of %v the runtime's is %v, %v", timeout, got.Images.Stall, err)
		}
	}
}

// The runtime is served on the config's CRI socket, which only its user may open.
func TestCRISocket(t *testing.T) {
	m := newMachine(t, viaCRI)
	withPlugin(t, m)
	m.cfg.Berth.CRISocket = filepath.Join(t.TempDir(), "sub", "cri.sock")
	m.open(t)
	if info, err := os.Stat(m.cfg.Berth.CRISocket); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the socket: %v, %v", info, err)
	}
	m.cfg.Kubelet.ContainerRuntimeEndpoint = "unix://" + m.cfg.Berth.CRISocket
	m.cfg.Berth.CRISocket = ""
	if v, err := m.open(t).Version(t.Context()); err != nil || v.GetRuntimeName() != "fake" {
		t.Errorf("through the socket: %v, %v", v, err)
	}
}

// The agent removes no file that is not a socket, whatever its config says.
func TestCRISocketIsAFile(t *testing.T) {
	m := newMachine(t, viaCRI)
	withPlugin(t, m)
	path := filepath.Join(t.TempDir(), "hosts")
	if err := os.WriteFile(path, []byte("precious"), 0o644); err != nil {
		t.Fatal(err)
	}
	m.cfg.Berth.CRISocket = path
	if r, err := Open(t.Context(), m.cfg, Deps{Logger: slog.New(slog.DiscardHandler)}); err == nil ||
		!strings.Contains(err.Error(), "there is a file that is no socket") {
		if err == nil {
			r.Close()
		}
		t.Errorf("%v", err)
	}
	if data, err := os.ReadFile(path); err != nil || string(data) != "precious" {
		t.Errorf("the file is now %q, %v", data, err)
	}
}

// Notes that a person must mend say where they are and how.
func TestDamagedNotes(t *testing.T) {
	root := t.TempDir()
	if err := os.MkdirAll(filepath.Dir(notesFile(root)), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(notesFile(root), make([]byte, 100), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := readNotes(root); err == nil || !strings.Contains(err.Error(), notesFile(root)+" is damaged") {
		t.Errorf("%v", err)
	}
}
