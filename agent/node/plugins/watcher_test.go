package plugins

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// plugin is a plugin on a socket.
type plugin struct {
	registerapi.UnimplementedRegistrationServer

	info *registerapi.PluginInfo
	told chan *registerapi.RegistrationStatus
}

func (p *plugin) GetInfo(context.Context, *registerapi.InfoRequest) (*registerapi.PluginInfo, error) {
	return p.info, nil
}

func (p *plugin) NotifyRegistrationStatus(
	_ context.Context, s *registerapi.RegistrationStatus,
) (*registerapi.RegistrationStatusResponse, error) {
	p.told <- s
	return &registerapi.RegistrationStatusResponse{}, nil
}

// servePlugin serves a plugin on a socket until stop is called, which removes the socket.
func servePlugin(t *testing.T, path, kind, name string) (p *plugin, stop func()) {
	t.Helper()
	p = &plugin{
		info: &registerapi.PluginInfo{Type: kind, Name: name, SupportedVersions: []string{"1.0.0"}},
		told: make(chan *registerapi.RegistrationStatus, 16),
	}
	server := grpc.NewServer()
	registerapi.RegisterRegistrationServer(server, p)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(l)
	}()
	stop = func() {
		server.Stop()
		<-done
	}
	t.Cleanup(stop)
	return p, stop
}

// desk is a Handler that records its calls. It refuses as many registrations as refusals says.
type desk struct {
	news     chan string
	refusals int
}

func (d *desk) Register(_ context.Context, p Plugin) error {
	if d.refusals > 0 {
		d.refusals--
		return errors.New("not today")
	}
	d.news <- "+" + p.Name + " " + filepath.Base(p.Endpoint) + " " + strings.Join(p.Versions, ",")
	return nil
}

func (d *desk) Deregister(p Plugin) { d.news <- "-" + p.Name }

// startWatcher runs a watcher over a new directory.
func startWatcher(t *testing.T, d *desk) (dir string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "registry")
	startWatcherIn(t, d, dir)
	return dir
}

// startWatcherIn runs a watcher over a directory.
func startWatcherIn(t *testing.T, d *desk, dir string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	w := New(Config{Dir: dir, Handlers: map[string]Handler{registerapi.CSIPlugin: d}})
	go func() { done <- w.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func (d *desk) wants(t *testing.T, want string) {
	t.Helper()
	if got := <-d.news; got != want {
		t.Errorf("the handler heard %q, want %q", got, want)
	}
}

func TestPluginsComeAndGo(t *testing.T) {
	d := &desk{news: make(chan string, 16)}
	dir := startWatcher(t, d)
	p, stop := servePlugin(t, dir+"/a.sock", registerapi.CSIPlugin, "a")
	d.wants(t, "+a a.sock 1.0.0")
	if s := <-p.told; !s.PluginRegistered || s.Error != "" {
		t.Errorf("told %v", s)
	}
	_, stopDeep := servePlugin(t, dir+"/deep/er/b.sock", registerapi.CSIPlugin, "b")
	d.wants(t, "+b b.sock 1.0.0")
	stop()
	d.wants(t, "-a")
	servePlugin(t, dir+"/a.sock", registerapi.CSIPlugin, "a")
	d.wants(t, "+a a.sock 1.0.0")
	stopDeep()
	d.wants(t, "-b")
}

// The watcher ignores files that are not sockets, hidden sockets, and plugins of a type without a
// handler. The plugin gets an error then.
func TestWhatIsNoPlugin(t *testing.T) {
	d := &desk{news: make(chan string, 16)}
	dir := startWatcher(t, d)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(dir+"/file.sock", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	servePlugin(t, dir+"/.hidden.sock", registerapi.CSIPlugin, "hidden")
	other, _ := servePlugin(t, dir+"/other.sock", registerapi.DevicePlugin, "other")
	if s := <-other.told; s.PluginRegistered ||
		!strings.Contains(s.Error, "no handler registered for plugin type: DevicePlugin at socket ") {
		t.Errorf("told %v", s)
	}
	servePlugin(t, dir+"/a.sock", registerapi.CSIPlugin, "a")
	d.wants(t, "+a a.sock 1.0.0")
	if len(d.news) > 0 || len(other.told) > 0 {
		t.Errorf("more: %q, %v", <-d.news, <-other.told)
	}
}

// A plugin that its handler refuses gets the error, and it is asked again.
func TestRefusedPluginIsAskedAgain(t *testing.T) {
	d := &desk{news: make(chan string, 16), refusals: 1}
	dir := startWatcher(t, d)
	p, _ := servePlugin(t, dir+"/a.sock", registerapi.CSIPlugin, "a")
	d.wants(t, "+a a.sock 1.0.0")
	if s := <-p.told; s.PluginRegistered || s.Error != "not today" {
		t.Errorf("told %v", s)
	}
	if s := <-p.told; !s.PluginRegistered {
		t.Errorf("told %v", s)
	}
}

// If nobody serves a socket, for example because the driver was killed, the next socket of that
// name replaces it.
func TestDeadSocket(t *testing.T) {
	d := &desk{news: make(chan string, 16)}
	dir := startWatcher(t, d)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", dir+"/a.sock")
	if err != nil {
		t.Fatal(err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	_ = l.Close()
	servePlugin(t, dir+"/b.sock", registerapi.CSIPlugin, "b")
	d.wants(t, "+b b.sock 1.0.0")
	if err := os.Remove(dir + "/a.sock"); err != nil {
		t.Fatal(err)
	}
	servePlugin(t, dir+"/a.sock", registerapi.CSIPlugin, "a")
	d.wants(t, "+a a.sock 1.0.0")
}

// A directory that cannot be read is scanned again and again, and no plugin is deregistered. The
// agent goes on.
func TestUnreadableDirectory(t *testing.T) {
	d := &desk{news: make(chan string, 16)}
	top := t.TempDir()
	file := top + "/plugins"
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	startWatcherIn(t, d, file+"/registry")
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	_, stop := servePlugin(t, file+"/registry/a.sock", registerapi.CSIPlugin, "a")
	d.wants(t, "+a a.sock 1.0.0")
	aside := top + "/aside"
	if err := os.WriteFile(aside, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	swap := func() {
		t.Helper()
		if err := unix.Renameat2(unix.AT_FDCWD, file, unix.AT_FDCWD, aside, unix.RENAME_EXCHANGE); err != nil {
			t.Fatal(err)
		}
	}
	swap()
	// this makes the watcher scan
	servePlugin(t, aside+"/registry/b.sock", registerapi.CSIPlugin, "b")
	swap()
	d.wants(t, "+b b.sock 1.0.0")
	stop()
}

// A plugin has made directories in each other until no path leads to the last one. The others come
// all the same, and what was found there before stays.
func TestDirectoryWithoutPath(t *testing.T) {
	w := New(Config{Dir: filepath.Join(t.TempDir(), "registry")})
	name := strings.Repeat("d", unix.NAME_MAX)
	if err := os.MkdirAll(filepath.Join(w.cfg.Dir, name), 0o750); err != nil {
		t.Fatal(err)
	}
	at, err := os.OpenRoot(w.cfg.Dir)
	for range unix.PathMax/unix.NAME_MAX + 1 {
		if err != nil {
			t.Fatal(err)
		}
		next, openErr := at.OpenRoot(name)
		err = errors.Join(openErr, at.Close())
		if at = next; err == nil {
			err = at.Mkdir(name, 0o750)
		}
	}
	_ = at.Close()
	l, err := net.Listen("unix", w.cfg.Dir+"/z.sock")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	deep := w.cfg.Dir + strings.Repeat("/"+name, unix.PathMax/unix.NAME_MAX+1) + "/known.sock"
	w.sockets[deep] = &socket{path: deep}
	found, missed, err := w.scan(nil)
	if _, kept := found[deep]; err != nil || missed == nil || len(found) != 2 || !kept {
		t.Errorf("found %d sockets, %v, %v", len(found), missed, err)
	}
}

// Without watches of the kernel, the directory is scanned periodically.
func TestWithoutWatches(t *testing.T) {
	w := New(Config{Dir: filepath.Join(t.TempDir(), "registry")})
	if found, missed, err := w.scan(nil); err != nil || missed != nil || len(found) != 0 {
		t.Error(found, missed, err)
	}
	l, err := net.Listen("unix", w.cfg.Dir+"/a.sock")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if found, _, err := w.scan(nil); err != nil || len(found) != 1 {
		t.Error(found, err)
	}
	begun := time.Now()
	if !w.await(t.Context(), nil, true) || time.Since(begun) < scanPeriod {
		t.Error("it did not wait")
	}
}

func TestDialWantsAPath(t *testing.T) {
	for _, bad := range []string{"", "relative", "tcp://127.0.0.1:1"} {
		if _, err := Dial(bad); err == nil {
			t.Errorf("dialled %q", bad)
		}
	}
}
