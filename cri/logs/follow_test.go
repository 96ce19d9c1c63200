package logs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/containerd/errdefs"
	"k8s.io/utils/ptr"
)

// follower follows a log in the background.
type follower struct {
	*testing.T
	file    File
	out     syncBuffer
	stopped chan struct{} // closed when the container has ended
	result  chan error
	writer  *os.File // the runtime's end of the log
}

// syncBuffer is a buffer whose reader waits for a text.
type syncBuffer struct {
	mu     sync.Mutex
	grown  chan struct{} // closed at the next write
	buffer bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.grown != nil {
		close(b.grown)
		b.grown = nil
	}
	return b.buffer.Write(p)
}

func (b *syncBuffer) look() (string, <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.grown == nil {
		b.grown = make(chan struct{})
	}
	return b.buffer.String(), b.grown
}

// patience bounds waits for what must happen.
const patience = time.Minute

// follow starts to follow a log. The interval is long, so only events can make the follower see
// something in time.
func follow(t *testing.T, text string, opts Options, deps Deps) *follower {
	f := &follower{T: t, file: write(t, text), stopped: make(chan struct{}), result: make(chan error, 1)}
	f.reopen()
	opts.Follow = true
	if deps.Interval == 0 {
		deps.Interval = time.Hour
	}
	if deps.Running == nil {
		deps.Stopped = f.stopped
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() { f.result <- Read(ctx, Output{&f.out, &f.out}, f.file, opts, deps) }()
	t.Cleanup(func() {
		cancel()
		<-f.result
		_ = f.writer.Close()
	})
	return f
}

func (f *follower) path() string { return filepath.Join(f.file.Root, f.file.Path) }

// reopen makes the runtime's file of the log, as the runtime does when it is asked to.
func (f *follower) reopen() {
	f.Helper()
	w, err := os.OpenFile(f.path(), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		f.Fatal(err)
	}
	if f.writer != nil {
		_ = f.writer.Close()
	}
	f.writer = w
}

func (f *follower) rename(suffix string) {
	f.Helper()
	if err := os.Rename(f.path(), f.path()+suffix); err != nil {
		f.Fatal(err)
	}
}

// print writes text into the log as it is.
func (f *follower) print(text string) {
	f.Helper()
	if _, err := f.writer.WriteString(text); err != nil {
		f.Fatal(err)
	}
}

// line writes a whole line.
func (f *follower) line(text string) {
	f.Helper()
	f.print(stamp(0) + " stdout F " + text + "\n")
}

// want waits until exactly this was read.
func (f *follower) want(text string) {
	f.Helper()
	timeout := time.NewTimer(patience)
	defer timeout.Stop()
	for {
		got, grown := f.out.look()
		if got == text {
			return
		}
		if !strings.HasPrefix(text, got) {
			f.Fatalf("read %q, want %q", got, text)
		}
		select {
		case <-grown:
		case err := <-f.result:
			f.result <- err
			f.Fatalf("ended with %v after %q, want %q", err, got, text)
		case <-timeout.C:
			f.Fatalf("read only %q, want %q", got, text)
		}
	}
}

// end waits until the reading has ended.
func (f *follower) end() error {
	f.Helper()
	select {
	case err := <-f.result:
		f.result <- err
		return err
	case <-time.After(patience):
		f.Fatal("the reading did not end")
		return nil
	}
}

func TestFollowUntilTheContainerEnds(t *testing.T) {
	f := follow(t, "$0 stdout F old\n", Options{}, Deps{})
	f.want("old\n")
	f.line("one")
	f.want("old\none\n")
	f.print(stamp(0) + " stdout F to")
	f.line("rn") // completes the line before: "rn" is the rest of that line's text
	f.want("old\none\nto" + stamp(0) + " stdout F rn\n")
	f.print(stamp(0) + " stdout F last words")
	close(f.stopped)
	if err := f.end(); err != nil {
		t.Error(err)
	}
	f.want("old\none\nto" + stamp(0) + " stdout F rn\nlast words")
}

func TestFollowAsksForTheEnd(t *testing.T) {
	for name, c := range map[string]struct {
		answers []error // one for each question; the last ends it
		want    error
	}{
		"container ended": {[]error{nil, nil, errStopped}, nil},
		"runtime restarts": {
			[]error{errdefs.ErrUnavailable, fmt.Errorf("ask: %w", errdefs.ErrUnavailable), errStopped}, nil,
		},
		"container gone": {[]error{nil, errdefs.ErrNotFound}, errdefs.ErrNotFound},
		"ended before":   {[]error{errStopped}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			asked := 0
			f := follow(t, "$0 stdout F one\n", Options{},
				Deps{Interval: time.Millisecond, Running: func(context.Context) (bool, error) {
					answer := c.answers[asked]
					asked++
					if errors.Is(answer, errStopped) {
						return false, nil
					}
					return true, answer
				}})
			if err := f.end(); !errors.Is(err, c.want) {
				t.Errorf("ended with %v, want %v", err, c.want)
			}
			f.want("one\n")
		})
	}
}

var errStopped = errors.New("the container has ended")

func TestFollowEndsWithItsContext(t *testing.T) {
	file := write(t, "$0 stdout F one\n")
	ctx, cancel := context.WithCancel(t.Context())
	var out syncBuffer
	result := make(chan error)
	go func() { result <- Read(ctx, Output{&out, &out}, file, Options{Follow: true}, Deps{}) }()
	for got, grown := out.look(); got == ""; got, grown = out.look() {
		<-grown
	}
	cancel()
	if err := <-result; !errors.Is(err, context.Canceled) {
		t.Errorf("ended with %v", err)
	}
}

func TestFollowTailAndLimit(t *testing.T) {
	f := follow(t, "$0 stdout F one\n$0 stdout F two\n$0 stdout F thr",
		Options{Tail: ptr.To[int64](1), LimitBytes: ptr.To[int64](12)}, Deps{})
	f.want("two\n")
	f.print("ee\n")
	f.want("two\nthree\n")
	f.line("four")
	if err := f.end(); err != nil {
		t.Error(err)
	}
	f.want("two\nthree\nfo")
}

func TestFollowAcrossRotation(t *testing.T) {
	f := follow(t, "", Options{}, Deps{})
	f.line("1")
	f.want("1\n")
	f.rename(".20260102-030405")
	f.line("2, after the renaming")
	f.want("1\n2, after the renaming\n")

	// The new file is there, but the runtime still writes to the old one.
	if err := os.WriteFile(f.path(), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	f.line("3, late")
	f.want("1\n2, after the renaming\n3, late\n")
	f.print(stamp(0) + " stdout P 4, torn")
	f.reopen()
	f.line("5")
	f.want("1\n2, after the renaming\n3, late\n4, torn5\n")
	f.rename(".20260102-030406")
	f.reopen()
	f.line("6")
	f.want("1\n2, after the renaming\n3, late\n4, torn5\n6\n")

	// The container ends right after a rotation, with nothing in the new file.
	f.rename(".20260102-030407")
	f.line("7")
	f.reopen()
	close(f.stopped)
	if err := f.end(); err != nil {
		t.Error(err)
	}
	f.want("1\n2, after the renaming\n3, late\n4, torn5\n6\n7\n")
}

// TestFollowWaitsForTheOldFilesWriter checks that a follower goes on with the new file only after
// the runtime has closed the old one: on a busy machine, the runtime writes its last lines after
// the first lines of the new file.
func TestFollowWaitsForTheOldFilesWriter(t *testing.T) {
	file := write(t, "$0 stdout F 1\n")
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(file.Root, file.Path)
		old, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer old.Close()
		var out bytes.Buffer
		r, err := newReader(Output{Stdout: &out}, file, Options{Follow: true}, Deps{})
		if err != nil {
			t.Fatal(err)
		}
		defer r.close()
		if err := os.Rename(path, path+".20260102-030405"); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(stamp(2)+" stdout F 3\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		var went error
		done := make(chan struct{})
		go func() {
			defer close(done)
			_, went = r.rotate(t.Context(), true)
		}()
		synctest.Wait() // it has looked, and waits to look again
		if _, err := old.WriteString(stamp(1) + " stdout F 2\n"); err != nil {
			t.Fatal(err)
		}
		if err := old.Close(); err != nil {
			t.Fatal(err)
		}
		<-done
		if err := errors.Join(went, r.drain(t.Context())); err != nil || out.String() != "1\n2\n3\n" {
			t.Errorf("read %q, %v", out.String(), err)
		}
	})
}

// TestFollowReadsWhatWasRotatedTwice checks that a reader that is slower than two rotations loses
// nothing, as long as the parts are not compressed yet.
func TestFollowReadsWhatWasRotatedTwice(t *testing.T) {
	file := write(t, "$0 stdout F 1\n")
	path := filepath.Join(file.Root, file.Path)
	gate := &gatedWriter{open: make(chan struct{}), reached: make(chan struct{})}
	stopped := make(chan struct{})
	result := make(chan error)
	go func() {
		result <- Read(t.Context(), Output{Stdout: gate}, file, Options{Follow: true}, Deps{Stopped: stopped})
	}()
	<-gate.reached // the follower has opened the first file
	for i, suffix := range []string{".20260102-030405", ".20260102-030406", ".20260102-030407"} {
		if err := os.Rename(path, path+suffix); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, fmt.Appendf(nil, "%s stdout F %d\n", stamp(0), i+2), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	close(stopped)
	close(gate.open)
	if err := <-result; err != nil || gate.buffer.String() != "1\n2\n3\n4\n" {
		t.Errorf("read %q, %v", gate.buffer.String(), err)
	}
}

// gatedWriter blocks its first write until it is opened.
type gatedWriter struct {
	open, reached chan struct{}
	once          sync.Once
	buffer        bytes.Buffer
}

func (g *gatedWriter) Write(p []byte) (int, error) {
	g.once.Do(func() {
		close(g.reached)
		<-g.open
	})
	return g.buffer.Write(p)
}

func TestFollowTruncatedAndRemovedLogs(t *testing.T) {
	f := follow(t, "$0 stdout F a long line of the old log\n", Options{}, Deps{})
	f.want("a long line of the old log\n")
	if err := os.Truncate(f.path(), 0); err != nil {
		t.Fatal(err)
	}
	f.line("new")
	f.want("a long line of the old log\nnew\n")
	if err := os.RemoveAll(filepath.Dir(f.path())); err != nil {
		t.Fatal(err)
	}
	close(f.stopped)
	if err := f.end(); err != nil {
		t.Error(err)
	}
}

func TestFollowRefusesALinkPutInTheLogsPlace(t *testing.T) {
	f := follow(t, "$0 stdout F one\n", Options{}, Deps{})
	f.want("one\n")
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte(stamp(0)+" stdout F secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	f.rename(".1")
	if err := os.Symlink(secret, f.path()); err != nil {
		t.Fatal(err)
	}
	if err := f.end(); !errors.Is(err, ErrEscape) {
		t.Errorf("ended with %v", err)
	}
	f.want("one\n")
}

// TestWatchIsDoneWithout checks that following works by the interval alone if there is no watch.
func TestWatchIsDoneWithout(t *testing.T) {
	w := newWatch(&dir{fd: -1}, "0.log", discard())
	defer w.close()
	if w.watcher != nil {
		t.Error("a directory that is not there is watched")
	}
}

// TestFollowersLeaveInotifyToOthers checks that followers use no more than their part of the
// machine's instances of inotify, and that one that ends makes room for another.
func TestFollowersLeaveInotifyToOthers(t *testing.T) {
	d, name, err := openDir(write(t, ""))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = d.close() }()
	log := slog.New(slog.DiscardHandler)
	var all []*watch
	for range mostWatches + 1 {
		all = append(all, newWatch(d, name, log))
	}
	if all[0].watcher == nil || all[mostWatches].watcher != nil {
		t.Errorf("the first one watches: %t, one too many does: %t", all[0].watcher != nil, all[mostWatches].watcher != nil)
	}
	all[0].close()
	all[0] = newWatch(d, name, log)
	if all[0].watcher == nil {
		t.Error("there is no room after one has ended")
	}
	for _, w := range all {
		w.close()
	}
}
