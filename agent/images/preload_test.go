package images

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/containerd/errdefs"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// fakeImporter imports files that contain the name of an image.
type fakeImporter struct {
	runtime *fakeRuntime

	mu      sync.Mutex
	fail    error
	hold    func(context.Context, string) error
	imports []string // base names
}

func (f *fakeImporter) Import(ctx context.Context, path string) ([]string, error) {
	f.mu.Lock()
	f.imports = append(f.imports, filepath.Base(path))
	fail, hold := f.fail, f.hold
	f.mu.Unlock()
	if hold != nil {
		if err := hold(ctx, path); err != nil {
			return nil, err
		}
	}
	if fail != nil {
		return nil, fail
	}
	name, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	if string(name) == "broken" {
		return nil, errors.New("not an archive")
	}
	f.runtime.put(string(name))
	return []string{string(name)}, nil
}

func (f *fakeImporter) take() (imports []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	imports, f.imports = f.imports, nil
	return imports
}

// archives is a test's images directory and the manager that uses it.
type archives struct {
	*testing.T
	dir      string
	importer *fakeImporter
	deps     Deps
	cfg      Config
}

func newArchives(t *testing.T) *archives {
	dir := t.TempDir()
	runtime := &fakeRuntime{present: map[string]*runtimeapi.Image{}}
	importer := &fakeImporter{runtime: runtime}
	return &archives{
		T: t, dir: dir, importer: importer, deps: Deps{Runtime: runtime, Importer: importer},
		cfg: Config{ImagesDir: filepath.Join(dir, "images"), StateFile: filepath.Join(dir, "state", "images.json")},
	}
}

// write writes a file into the images directory that was complete a while ago.
func (a *archives) write(name, content string) {
	a.Helper()
	a.writeAt(name, content, time.Now().Add(-time.Hour))
}

// writeAt writes a file that was changed at a time of the bubble.
func (a *archives) writeAt(name, content string, at time.Time) {
	a.Helper()
	path := filepath.Join(a.cfg.ImagesDir, name)
	err := errors.Join(os.MkdirAll(a.cfg.ImagesDir, 0o755), os.WriteFile(path, []byte(content), 0o600),
		os.Chtimes(path, at, at))
	if err != nil {
		a.Fatal(err)
	}
}

func (a *archives) wantImports(want ...string) {
	a.Helper()
	if got := a.importer.take(); !slices.Equal(got, want) {
		a.Errorf("imports: %v, want %v", got, want)
	}
}

func (a *archives) remove(name string) {
	a.Helper()
	if err := os.Remove(filepath.Join(a.cfg.ImagesDir, name)); err != nil {
		a.Fatal(err)
	}
}

// TestArchivesComeAndGo checks that nobody has to ask for an archive: a new one, a changed one and
// a deleted one are noticed.
func TestArchivesComeAndGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newArchives(t)
		var events []string
		a.deps.Event = func(kind, reason, message string) {
			events = append(events, kind+" "+reason+": "+strings.ReplaceAll(message, a.cfg.ImagesDir, "DIR"))
		}
		pins := &fakePins{}
		a.deps.Pinner = pins
		b := start(t, a.cfg, a.deps)
		defer b.end()
		a.write("a.tar", "one.example/a:1")
		b.sleep(scanPeriod)
		a.wantImports("a.tar")
		b.sleep(10 * scanPeriod) // what has not changed is not imported again
		a.wantImports()
		a.writeAt("a.tar", "one.example/a:2", time.Now().Add(-time.Minute))
		a.writeAt("b.tar", "broken", time.Now().Add(-time.Minute))
		b.sleep(scanPeriod)
		a.wantImports("a.tar", "b.tar")
		pins.wantUnpinned(t, "one.example/a:1")
		b.sleep(10 * scanPeriod)
		a.wantImports()
		a.remove("b.tar")
		a.remove("a.tar")
		pins.fail(errors.New("no answer"))
		b.sleep(scanPeriod)
		pins.wantUnpinned(t)
		if list := b.Archives(); len(list) != 0 {
			t.Errorf("archives are %+v", list)
		}
		pins.fail(nil) // what failed is tried again
		b.sleep(scanPeriod)
		pins.wantUnpinned(t, "one.example/a:2")
		want := []string{
			"Normal ImageImported: Imported one.example/a:1 from DIR/a.tar",
			"Normal ImageImported: Imported one.example/a:2 from DIR/a.tar",
			"Warning ImageImportFailed: Failed to import images from DIR/b.tar: not an archive",
		}
		if !slices.Equal(events, want) {
			t.Errorf("events:\n%s", strings.Join(events, "\n"))
		}
	})
}

// TestPinsOfArchives checks which images lose their pin when no archive gives them any more, also
// if that happens while no agent runs.
func TestPinsOfArchives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newArchives(t)
		pins := &fakePins{}
		a.deps.Pinner = pins
		var err error
		if a.cfg.Pins, err = NewPins([]string{"one.example/config:1"}); err != nil {
			t.Fatal(err)
		}
		for name, image := range map[string]string{
			"a.tar": "one.example/a:1", "twice.tar": "one.example/a:1", "config.tar": "one.example/config:1",
			"b.tar": "one.example/b:1",
		} {
			a.write(name, image)
		}
		b := start(t, a.cfg, a.deps)
		kept := func(name string) string {
			return strings.ReplaceAll(b.KeptBy(&runtimeapi.Image{Id: "x", RepoTags: []string{name}}), a.cfg.ImagesDir, "DIR")
		}
		if why := kept("one.example/b:1"); !strings.HasPrefix(why, "the archive DIR/b.tar has it") {
			t.Errorf("kept because %q", why)
		}
		b.end()
		for _, name := range []string{"a.tar", "config.tar", "b.tar"} {
			a.remove(name)
		}
		b = start(t, a.cfg, a.deps)
		defer b.end()
		pins.wantUnpinned(t, "one.example/b:1")
		if why := kept("one.example/b:1"); why != "" {
			t.Errorf("kept because %q", why)
		}
		if why := kept("one.example/a:1"); !strings.HasPrefix(why, "the archive DIR/twice.tar has it") {
			t.Errorf("kept because %q", why)
		}
	})
}

// TestNewestArchiveHasTheName checks the order of archives that give the same name.
func TestNewestArchiveHasTheName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newArchives(t)
		old := time.Now().Add(-time.Hour)
		a.writeAt("a-new.tar", "one.example/a:1", old.Add(time.Minute))
		a.writeAt("b-old.tar", "one.example/a:1", old)
		b := start(t, a.cfg, a.deps)
		defer b.end()
		a.wantImports("b-old.tar", "a-new.tar")
		a.writeAt("b-old.tar", "one.example/a:1", old.Add(time.Second)) // still the older one
		b.sleep(scanPeriod)
		a.wantImports("b-old.tar", "a-new.tar")
	})
}

// TestArchiveIsAwaited checks that a file is not imported while somebody writes it, and that pods
// wait for it at the start.
func TestArchiveIsAwaited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newArchives(t)
		a.writeAt("a.tar", "one.exam", time.Now())
		b := start(t, a.cfg, a.deps)
		defer b.end()
		wantWait(t, b.want("p", "one.example/a:1"), ReasonCreating,
			`Image "one.example/a:1": waiting for the import of `+a.cfg.ImagesDir, 0)
		b.takeWoken()
		b.sleep(settle / 2)
		a.writeAt("a.tar", "one.example/a:1", time.Now())
		b.sleep(settle)
		a.wantImports()
		if list := b.Archives(); len(list) != 1 || list[0].Error != "" || list[0].Images != nil {
			t.Errorf("archives are %+v, want one that waits", list)
		}
		// a clock that is ahead does not hold the file back for ever
		a.writeAt("a.tar", "one.example/a:1", time.Now().Add(time.Hour))
		writer, err := os.OpenFile(filepath.Join(a.cfg.ImagesDir, "a.tar"), os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		b.sleep(3 * scanPeriod)
		a.wantImports()
		if err := writer.Close(); err != nil {
			t.Fatal(err)
		}
		b.sleep(scanPeriod)
		a.wantImports("a.tar")
		b.wantWoken("p")
		wantReady(t, b.want("p", "one.example/a:1"))
	})
}

// fakePins records which images lose their pin.
type fakePins struct {
	mu       sync.Mutex
	err      error
	unpinned []string
}

func (*fakePins) Pin(context.Context, string) error { return nil }

func (f *fakePins) Unpin(_ context.Context, name string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err == nil {
		f.unpinned = append(f.unpinned, name)
	}
	return f.err
}

func (f *fakePins) fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err = err
}

func (f *fakePins) wantUnpinned(t *testing.T, want ...string) {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	if !slices.Equal(f.unpinned, want) {
		t.Errorf("unpinned %q, want %q", f.unpinned, want)
	}
	f.unpinned = nil
}

func TestPreload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newArchives(t)
		a.write("a.tar", "one.example/a:1")
		a.write("b.tar.gz", "one.example/b:1")
		a.write("c.tgz", "broken")
		a.write("d.txt", "one.example/d:1")
		a.write(".e.tar", "one.example/e:1")
		if err := os.Mkdir(filepath.Join(a.cfg.ImagesDir, "f.tar"), 0o755); err != nil {
			t.Fatal(err)
		}
		b := start(t, a.cfg, a.deps)
		a.wantImports("a.tar", "b.tar.gz", "c.tgz")
		wantReady(t, b.want("p", "one.example/a:1", policy(v1.PullNever)))
		list := b.Archives()
		if len(list) != 3 || !slices.Equal(list[0].Images, []string{"one.example/a:1"}) ||
			list[2].Error != "not an archive" {
			t.Errorf("archives are %+v", list)
		}

		// If nothing changed, nothing is imported again, not even a file that failed.
		if err := b.Preload(t.Context()); err != nil {
			t.Error(err)
		}
		a.wantImports()
		// A changed file is imported again, and so is one whose image was removed.
		b.sleep(time.Second)
		a.write("c.tgz", "one.example/c:1") // its time is a second later
		b.runtime.remove("one.example/b:1")
		if err := b.Preload(t.Context()); err != nil {
			t.Error(err)
		}
		a.wantImports("b.tar.gz", "c.tgz")
		b.end()

		// The next run remembers.
		b = start(t, a.cfg, a.deps)
		a.wantImports()
		// A removed file is forgotten; its image stays.
		if err := os.Remove(filepath.Join(a.cfg.ImagesDir, "a.tar")); err != nil {
			t.Fatal(err)
		}
		if err := b.Preload(t.Context()); err != nil {
			t.Error(err)
		}
		if got := len(b.Archives()); got != 2 {
			t.Errorf("%d archives, want 2", got)
		}
		wantReady(t, b.want("p", "one.example/a:1", policy(v1.PullNever)))
		b.end()

		// With an invalid state file, all is imported again.
		if err := os.WriteFile(a.cfg.StateFile, []byte("{"), 0o600); err != nil {
			t.Fatal(err)
		}
		start(t, a.cfg, a.deps).end()
		a.wantImports("b.tar.gz", "c.tgz")
	})
}

func TestPodsWaitForThePreload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newArchives(t)
		a.write("a.tar", "one.example/a:1")
		a.write("b.tar", "one.example/b:1")
		hold, release := held()
		a.importer.hold = hold
		b := start(t, a.cfg, a.deps)
		waiting := "waiting for the import of " + a.cfg.ImagesDir
		wantWait(t, b.want("pa", "one.example/a:1"), ReasonCreating, `Image "one.example/a:1": `+waiting, 0)
		wantWait(t, b.want("pb", "one.example/b:1", policy(v1.PullNever)), ReasonCreating,
			`Image "one.example/b:1": `+waiting, 0)
		b.want("always", "one.example/c")
		b.wantPulls("one.example/c:latest") // this image is not in the directory
		b.takeWoken()
		release(nil)
		b.wantWoken("pa", "pb")
		wantReady(t, b.want("pa", "one.example/a:1"))
		b.want("pb", "one.example/b:1", policy(v1.PullNever))
		b.want("pd", "one.example/d:1")
		release(nil)
		b.takeWoken()
		wantReady(t, b.want("pb", "one.example/b:1", policy(v1.PullNever)))
		wantWait(t, b.want("pd", "one.example/d:1"), ReasonCreating, `Pulling image "one.example/d:1"`, 0)
	})
}

func TestHangingImportDoesNotHoldPodsForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newArchives(t)
		a.write("a.tar", "one.example/a:1")
		a.importer.hold, _ = held()
		b := start(t, a.cfg, a.deps)
		b.want("p", "one.example/d:1")
		b.sleep(DefaultStallTimeout)
		b.wantWoken("p")
		b.want("p", "one.example/d:1")
		b.wantPulls("one.example/d:1")
		b.sleep(DefaultPullTimeout)
		if list := b.Archives(); len(list) != 1 || list[0].Error == "" {
			t.Errorf("archives are %+v, want one that failed", list)
		}
	})
}

func TestPreloadAwaitsTheRuntime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newArchives(t)
		a.write("a.tar", "one.example/a:1")
		a.importer.fail = errdefs.ErrUnavailable
		b := start(t, a.cfg, a.deps)
		b.want("p", "one.example/a:1")
		b.sleep(10 * time.Second)
		if n := len(a.importer.take()); n < 5 || n > 15 {
			t.Errorf("%d tries in 10 s", n)
		}
		b.wantWoken()
		a.importer.mu.Lock()
		a.importer.fail = nil
		a.importer.mu.Unlock()
		b.sleep(2 * preloadRetry)
		b.wantWoken("p")
		wantReady(t, b.want("p", "one.example/a:1"))
	})
}

func TestRuntimesThatCannotImport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newArchives(t)
		a.write("a.tar", "one.example/a:1")
		a.importer.fail = errdefs.ErrNotImplemented
		b := start(t, a.cfg, a.deps)
		wantWait(t, b.want("p", "one.example/a:1"), ReasonCreating, `Pulling image "one.example/a:1"`, 0)
		b.end()
		a.deps.Importer = nil
		b = start(t, a.cfg, a.deps)
		wantReady(t, b.want("p", "one.example/a:1"))
	})
}

func TestLateArchiveWakesWhoNeedsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newArchives(t)
		b := start(t, a.cfg, a.deps)
		b.runtime.pull = func(context.Context, string) error { return errPull }
		b.want("p", "one.example/a:1")
		b.want("n", "one.example/a:1", policy(v1.PullNever))
		b.want("o", "one.example/o:1")
		b.takeWoken()
		a.write("a.tar", "one.example/a:1")
		b.want("o", "one.example/o:1") // a missing image starts a scan
		b.wantWoken("n", "p")
		wantReady(t, b.want("p", "one.example/a:1"))
		wantReady(t, b.want("n", "one.example/a:1", policy(v1.PullNever)))
	})
}
