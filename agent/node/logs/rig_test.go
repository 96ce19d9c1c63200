package logs

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/berthd/berth/cri"
	crilogs "github.com/berthd/berth/cri/logs"
)

// rig is a manager with containers that write as a runtime does: they write to the file that was
// opened, even if it is renamed.
type rig struct {
	*testing.T
	root    string
	cfg     Config
	manager *Manager
	watcher *fakeWatcher
	stop    func()

	mu      sync.Mutex
	writers map[string]*writer
	// fail is called before a log is reopened, failAfter afterwards.
	fail, failAfter func() error
	reopened        int
}

// writer is a container's end of its log.
type writer struct {
	path  string
	file  *os.File
	lines int
}

func newRig(t *testing.T) *rig {
	r := &rig{T: t, root: t.TempDir(), writers: map[string]*writer{}}
	r.cfg = Config{
		Root:         r.root,
		MaxSize:      1000,
		MaxFiles:     3,
		Interval:     10 * time.Second,
		Workers:      1,
		ContainerMax: 1 << 20,
		NodeMax:      1 << 30,
	}
	return r
}

// start runs a manager. A second manager replaces the first one, which has ended.
func (r *rig) start() {
	r.Helper()
	r.watcher = &fakeWatcher{files: map[int32]os.FileInfo{}, out: make(chan []int32, 1000)}
	r.manager = New(r.cfg, Deps{
		Runtime: r,
		Logger:  slog.New(slog.NewTextHandler(r.Output(), nil)),
		watch:   func() (watcher, error) { return r.watcher, nil },
	})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := r.manager.Run(ctx); err != nil {
			r.Error(err)
		}
	}()
	r.stop = sync.OnceFunc(func() {
		cancel()
		<-done
	})
	r.Cleanup(r.stop)
}

func pod(name string) cri.PodID {
	return cri.PodID{Namespace: "default", Name: name, UID: types.UID("uid-" + name)}
}

// run makes an instance of a container and reports it to the manager.
func (r *rig) run(name string, attempt int) *writer {
	r.Helper()
	path := filepath.Join(cri.PodLogDir(r.root, pod(name)), cri.ContainerLogPath("main", attempt))
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		r.Fatal(err)
	}
	w := &writer{path: path}
	w.open(r)
	r.mu.Lock()
	r.writers[fmt.Sprintf("%s-%d", name, attempt)] = w
	r.mu.Unlock()
	r.track(name, attempt)
	return w
}

func (r *rig) track(name string, attempt int) {
	path := filepath.Join(cri.PodLogDir(r.root, pod(name)), cri.ContainerLogPath("main", attempt))
	r.manager.Track(pod(name), []Container{{Name: "main", ID: fmt.Sprintf("%s-%d", name, attempt), LogPath: path}})
}

func (w *writer) open(t testing.TB) {
	f, err := os.OpenFile(w.path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o640)
	if err != nil {
		t.Fatal(err)
	}
	if w.file != nil {
		_ = w.file.Close()
	}
	w.file = f
	t.Cleanup(func() { _ = f.Close() })
}

// ReopenContainerLog is the runtime's method.
func (r *rig) ReopenContainerLog(_ context.Context, id string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.fail != nil {
		if err := r.fail(); err != nil {
			return err
		}
	}
	r.reopened++
	r.writers[id].open(r)
	if r.failAfter != nil {
		return r.failAfter()
	}
	return nil
}

// print writes numbered lines of about 100 bytes.
func (r *rig) print(w *writer, lines int) {
	r.Helper()
	for range lines {
		r.write(w, strings.Repeat("x", 60))
	}
}

// write writes one numbered line.
func (r *rig) write(w *writer, text string) {
	r.Helper()
	w.lines++
	r.mu.Lock()
	_, err := fmt.Fprintf(w.file, "2026-01-02T03:04:05.%09dZ stdout F %d %s\n", w.lines, w.lines, text)
	info, statErr := w.file.Stat()
	r.mu.Unlock()
	if err != nil || statErr != nil {
		r.Fatal(err, statErr)
	}
	r.watcher.wrote(info)
}

// settle waits until everything that happens within a while has happened.
func (r *rig) settle(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// ls returns the names in a pod's log directory.
func (r *rig) ls(name string) []string {
	r.Helper()
	entries, err := os.ReadDir(filepath.Join(cri.PodLogDir(r.root, pod(name)), "main"))
	if err != nil {
		r.Fatal(err)
	}
	names := []string{}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// size is the size of a pod's logs.
func (r *rig) size(name string) (total int64) {
	r.Helper()
	entries, err := os.ReadDir(filepath.Join(cri.PodLogDir(r.root, pod(name)), "main"))
	if err != nil {
		r.Fatal(err)
	}
	for _, e := range entries {
		if info, err := e.Info(); err == nil {
			total += info.Size()
		}
	}
	return total
}

// read returns the numbers of the lines that an instance's log still has.
func (r *rig) read(name string, attempt int) []int {
	r.Helper()
	var out strings.Builder
	path, err := filepath.Rel(r.root,
		filepath.Join(cri.PodLogDir(r.root, pod(name)), cri.ContainerLogPath("main", attempt)))
	if err != nil {
		r.Fatal(err)
	}
	if err := crilogs.Read(r.Context(), crilogs.Output{Stdout: &out}, crilogs.File{Root: r.root, Path: path},
		crilogs.Options{}, crilogs.Deps{}); err != nil {
		r.Fatal(err)
	}
	var numbers []int
	for line := range strings.Lines(out.String()) {
		var n int
		if _, err := fmt.Sscan(line, &n); err != nil {
			r.Fatalf("line %q: %v", line, err)
		}
		numbers = append(numbers, n)
	}
	return numbers
}

// wantLines fails unless the log has the lines first to last, each once.
func (r *rig) wantLines(name string, attempt, first, last int) {
	r.Helper()
	got := r.read(name, attempt)
	if len(got) != last-first+1 {
		r.Fatalf("it has %d lines, want %d to %d: %v", len(got), first, last, got)
	}
	for i, n := range got {
		if n != first+i {
			r.Fatalf("line %d is number %d, want %d", i, n, first+i)
		}
	}
}

// fakeWatcher is a watcher whose events the test sends.
type fakeWatcher struct {
	mu    sync.Mutex
	last  int32
	files map[int32]os.FileInfo
	out   chan []int32
	adds  int
	fail  error
}

func (w *fakeWatcher) add(f *os.File) (int32, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	info, err := f.Stat()
	if w.fail != nil {
		err = w.fail
	}
	if err != nil {
		return noWatch, err
	}
	w.last++
	w.adds++
	w.files[w.last] = info
	return w.last, nil
}

func (w *fakeWatcher) remove(watch int32) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.files, watch)
}

// wrote ends the watches of a file.
func (w *fakeWatcher) wrote(info os.FileInfo) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for watch, other := range w.files {
		if os.SameFile(info, other) {
			delete(w.files, watch)
			w.out <- []int32{watch}
		}
	}
}

func (w *fakeWatcher) events() <-chan []int32 { return w.out }
func (w *fakeWatcher) close()                 {}
