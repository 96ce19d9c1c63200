package logs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/berthd/berth/cri"
)

var rotatedName = regexp.MustCompile(`^\d+\.log(\.\d{8}-\d{6}(\.gz)?)?$`)

func TestRotates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.start()
		w := r.run("web", 0)
		r.settle(time.Second)
		r.print(w, 5)
		r.settle(time.Minute)
		if names := r.ls("web"); len(names) != 1 {
			t.Fatalf("half a log was rotated: %v", names)
		}
		r.print(w, 10)
		r.settle(time.Minute)
		if names := r.ls("web"); len(names) != 2 || !rotatedName.MatchString(names[1]) ||
			strings.HasSuffix(names[1], ".gz") {
			t.Fatalf("after one rotation: %v", names)
		}
		r.wantLines("web", 0, 1, 15)
		r.print(w, 11)
		r.settle(time.Minute)
		if names := r.ls("web"); len(names) != 3 || !strings.HasSuffix(names[1], ".gz") ||
			strings.HasSuffix(names[2], ".gz") {
			t.Fatalf("after two rotations: %v", names)
		}
		r.wantLines("web", 0, 1, 26)
		r.print(w, 12)
		r.settle(time.Minute)
		r.print(w, 1)
		if names := r.ls("web"); len(names) != 3 || !strings.HasSuffix(names[1], ".gz") {
			t.Fatalf("after three rotations: %v", names)
		}
		r.wantLines("web", 0, 16, 39)
		for _, name := range r.ls("web") {
			if !rotatedName.MatchString(name) {
				t.Errorf("odd name %s", name)
			}
		}
	})
}

// A container that does not write costs nothing: no check, no watch, no call.
func TestRestingContainersCostNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.start()
		for i := range 100 {
			r.run(fmt.Sprintf("web%d", i), 0)
		}
		r.settle(time.Minute)
		adds := r.watcher.adds
		if len(r.watcher.files) != 100 || adds != 100 {
			t.Fatalf("%d of 100 are watched, after %d watches", len(r.watcher.files), adds)
		}
		before := time.Now()
		r.settle(24 * time.Hour)
		if r.watcher.adds != adds || r.reopened != 0 {
			t.Errorf("in %s %d watches were made and %d logs reopened", time.Since(before), r.watcher.adds-adds,
				r.reopened)
		}
	})
}

// A container that goes on writing is rotated before it has filled the room that it has.
func TestFastWriterStaysUnderItsBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		// The test uses a thousandth of 50 MB/s, of 10 MiB a file and of 100 MiB in total, in the
		// same time.
		r.cfg.MaxSize, r.cfg.MaxFiles, r.cfg.ContainerMax = 10_000, 5, 100_000
		r.start()
		w := r.run("web", 0)
		most := int64(0)
		for range 10_000 { // 10 seconds
			r.print(w, 1) // 100 bytes every 2 ms
			time.Sleep(2 * time.Millisecond)
			most = max(most, r.size("web"))
		}
		r.settle(time.Minute)
		if most > 60_000 {
			t.Errorf("its logs took %d bytes", most)
		}
		if r.reopened < 80 {
			t.Errorf("it was rotated %d times", r.reopened)
		}
		got := r.read("web", 0)
		r.wantLines("web", 0, got[0], 10_000)
		if got[0] > 10_000-340 {
			t.Errorf("only %d lines are left", len(got))
		}
	})
}

// The manager sees a burst of a resting container at once, not only at the next interval.
func TestBurstOutOfRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.start()
		w := r.run("web", 0)
		r.settle(time.Hour)
		r.print(w, 1)
		r.settle(time.Millisecond)
		r.print(w, 20)
		r.settle(50 * time.Millisecond)
		if names := r.ls("web"); len(names) != 2 {
			t.Errorf("after 50 ms: %v", names)
		}
	})
}

// Logs of earlier instances count, and they are removed first. A container that crashes in a loop
// leaves no more than its bound.
func TestCrashLoopIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.cfg.ContainerMax = 3000
		r.start()
		for attempt := range 20 {
			w := r.run("web", attempt)
			r.settle(time.Second)
			r.print(w, 9)
			r.settle(time.Second)
			if size := r.size("web"); size > 3000+1000 {
				t.Fatalf("after %d instances its logs take %d bytes: %v", attempt+1, size, r.ls("web"))
			}
		}
		r.run("web", 20)
		r.settle(time.Second)
		if size := r.size("web"); size > 3000 {
			t.Errorf("its logs take %d bytes: %v", size, r.ls("web"))
		}
		r.wantLines("web", 19, 1, 9)
	})
}

// All logs together have a bound: the container with the largest logs gives up some.
func TestNodeIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.cfg.NodeMax, r.cfg.MaxFiles, r.cfg.MaxSize = 12_000, 9, 2000
		r.start()
		quiet := r.run("quiet", 0)
		r.print(quiet, 15)
		loud := []*writer{r.run("loud1", 0), r.run("loud2", 0)}
		r.settle(time.Second)
		for range 40 {
			for _, w := range loud {
				r.print(w, 11)
			}
			r.settle(5 * time.Second)
			if total := r.size("quiet") + r.size("loud1") + r.size("loud2"); total > 12_000 {
				t.Fatalf("the logs take %d bytes", total)
			}
		}
		r.wantLines("quiet", 0, 1, 15)
		// The logs of an ended pod count while they exist.
		r.manager.Forget(pod("quiet").UID)
		if err := os.RemoveAll(cri.PodLogDir(r.root, pod("quiet"))); err != nil {
			t.Fatal(err)
		}
		r.settle(time.Second)
	})
}

func TestRuntimeThatDoesNotReopen(t *testing.T) {
	away := errors.New("the runtime is away")
	for name, c := range map[string]struct {
		fail func(r *rig)
		// first is the first line that is left at the end.
		rotated bool
	}{
		"away": {func(r *rig) {
			r.fail = func() error { return away }
		}, false},
		"answer lost": {func(r *rig) {
			r.failAfter = func() error { return away }
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				r.start()
				c.fail(r)
				w := r.run("web", 0)
				r.print(w, 15)
				r.settle(time.Minute)
				r.print(w, 3)
				names := r.ls("web")
				if len(names) == 2 != c.rotated || names[0] != "0.log" {
					t.Fatalf("while the runtime fails: %v", names)
				}
				r.mu.Lock()
				r.fail, r.failAfter = nil, nil
				r.mu.Unlock()
				r.settle(time.Minute)
				if names := r.ls("web"); len(names) != 2 {
					t.Errorf("once it works again: %v", names)
				}
				r.print(w, 1)
				r.wantLines("web", 0, 1, 19)
			})
		})
	}
}

// The next agent repairs what an agent left that ended between renaming and reopening, or between
// the steps of a compression.
func TestTakesOverWhatACrashLeft(t *testing.T) {
	for name, c := range map[string]struct {
		crash func(t *testing.T, r *rig, w *writer, dir string)
		last  int
	}{
		"renamed, not reopened": {func(t *testing.T, r *rig, w *writer, dir string) {
			r.print(w, 12)
			if err := os.Rename(w.path, w.path+".20260102-030405"); err != nil {
				t.Fatal(err)
			}
			r.print(w, 3)
		}, 15},
		"reopened, not compressed": {func(t *testing.T, r *rig, w *writer, dir string) {
			for i := range 2 {
				r.print(w, 12)
				if err := os.Rename(w.path, fmt.Sprintf("%s.20260102-03040%d", w.path, i)); err != nil {
					t.Fatal(err)
				}
				w.open(t)
			}
			if err := os.WriteFile(filepath.Join(dir, "0.log.20260102-030400.tmp"), []byte("half"), 0o600); err != nil {
				t.Fatal(err)
			}
		}, 24},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				r.start()
				w := r.run("web", 0)
				r.settle(time.Second)
				r.stop()
				c.crash(t, r, w, filepath.Dir(w.path))
				r.start()
				r.track("web", 0)
				r.settle(time.Minute)
				r.print(w, 1)
				r.wantLines("web", 0, 1, c.last+1)
				for _, name := range r.ls("web") {
					if !rotatedName.MatchString(name) {
						t.Errorf("left behind: %s", name)
					}
				}
				if names := r.ls("web"); names[0] != "0.log" {
					t.Errorf("the log is not there: %v", names)
				}
			})
		})
	}
}

// If the kernel has no watches left, the manager checks logs at the interval.
func TestWithoutWatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.start()
		r.watcher.fail = errors.New("no space left on device")
		w := r.run("web", 0)
		r.settle(time.Minute)
		r.print(w, 15)
		r.settle(r.cfg.Interval + time.Second)
		if names := r.ls("web"); len(names) != 2 {
			t.Errorf("after %s: %v", r.cfg.Interval, names)
		}
	})
}

// The manager leaves alone a log directory that was removed or that is a link.
func TestOddDirectories(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.start()
		w := r.run("gone", 0)
		r.settle(time.Second)
		if err := os.RemoveAll(filepath.Dir(w.path)); err != nil {
			t.Fatal(err)
		}
		r.print(w, 20)
		r.fail = func() error { return errors.New("no such container") }
		outside := t.TempDir()
		if err := os.WriteFile(filepath.Join(outside, "0.log"), []byte(strings.Repeat("x", 5000)), 0o600); err != nil {
			t.Fatal(err)
		}
		dir := filepath.Join(cri.PodLogDir(r.root, pod("link")), "main")
		if err := errors.Join(os.MkdirAll(filepath.Dir(dir), 0o755), os.Symlink(outside, dir)); err != nil {
			t.Fatal(err)
		}
		r.track("link", 0)
		r.settle(time.Minute)
		if entries, err := os.ReadDir(outside); err != nil || len(entries) != 1 {
			t.Errorf("a link was followed: %v, %v", entries, err)
		}
		r.manager.Forget(pod("gone").UID)
		r.settle(time.Minute)
	})
}

// A new config applies to existing logs, also to a log that nobody writes to.
func TestSet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.start()
		w := r.run("web", 0)
		r.print(w, 5)
		r.settle(time.Minute)
		if names := r.ls("web"); len(names) != 1 {
			t.Fatalf("half a log was rotated: %v", names)
		}
		smaller := r.cfg
		smaller.MaxSize = 300
		r.manager.Set(smaller)
		r.settle(time.Minute)
		if names := r.ls("web"); len(names) != 2 {
			t.Errorf("a log that is too large now was not rotated: %v", names)
		}
		r.wantLines("web", 0, 1, 5)
	})
}
