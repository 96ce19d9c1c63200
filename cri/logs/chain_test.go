package logs

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/utils/ptr"
)

// rotated makes a log of three parts and a current file, with two lines each: 0 and 1 in the oldest
// part, and so on. The oldest two parts are compressed.
func rotated(t *testing.T) File {
	t.Helper()
	file := write(t, "$6 stdout F 6\n$7 stdout F 7\n")
	d, err := OpenDirectory(file.Root, "app")
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	for i := range 3 {
		name := fmt.Sprintf("0.log.20260102-03040%d", 2*i+1)
		path := filepath.Join(file.Root, "app", name)
		text := fmt.Sprintf("%s stdout F %d\n%s stderr F %d\n", stamp(2*i), 2*i, stamp(2*i+1), 2*i+1)
		last, _ := time.Parse(time.RFC3339Nano, stamp(2*i+1))
		if err := errors.Join(os.WriteFile(path, []byte(text), 0o600), os.Chtimes(path, last, last)); err != nil {
			t.Fatal(err)
		}
		if i == 2 {
			break
		}
		if err := d.Compress(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
	return file
}

// lines returns the lines with these numbers.
func lines(from, to int) string {
	var b strings.Builder
	for i := from; i <= to; i++ {
		fmt.Fprintln(&b, i)
	}
	return b.String()
}

func TestReadOverRotatedParts(t *testing.T) {
	at := func(n int) time.Time {
		when, _ := time.Parse(time.RFC3339Nano, stamp(n))
		return when
	}
	for name, c := range map[string]struct {
		opts Options
		want string
	}{
		"all":                      {Options{}, lines(0, 7)},
		"tail in the current file": {Options{Tail: ptr.To[int64](2)}, lines(6, 7)},
		"tail in a part":           {Options{Tail: ptr.To[int64](3)}, lines(5, 7)},
		"tail of whole files":      {Options{Tail: ptr.To[int64](4)}, lines(4, 7)},
		"tail in a compressed one": {Options{Tail: ptr.To[int64](5)}, lines(3, 7)},
		"tail in the oldest":       {Options{Tail: ptr.To[int64](7)}, lines(1, 7)},
		"tail of more than all":    {Options{Tail: ptr.To[int64](9)}, lines(0, 7)},
		"tail 0":                   {Options{Tail: ptr.To[int64](0)}, ""},
		"since a part":             {Options{Since: at(4)}, lines(4, 7)},
		"since in a part":          {Options{Since: at(3)}, lines(3, 7)},
		"since and tail":           {Options{Since: at(3), Tail: ptr.To[int64](6)}, lines(3, 7)},
		"limit":                    {Options{LimitBytes: ptr.To[int64](9)}, lines(0, 3) + "4"},
		"one stream":               {Options{Stream: "Stderr"}, "1\n3\n5\n"},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			if err := Read(t.Context(), Output{&out, &out}, rotated(t), c.opts, Deps{}); err != nil ||
				out.String() != c.want {
				t.Errorf("read %q, %v, want %q", out.String(), err, c.want)
			}
		})
	}
}

// TestReadWithoutACurrentFile reads a log between its renaming and its reopening, when no file has
// the log's own name.
func TestReadWithoutACurrentFile(t *testing.T) {
	file := rotated(t)
	if err := os.Remove(filepath.Join(file.Root, file.Path)); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := Read(t.Context(), Output{&out, &out}, file, Options{Tail: ptr.To[int64](3)}, Deps{}); err != nil ||
		out.String() != lines(3, 5) {
		t.Errorf("read %q, %v", out.String(), err)
	}
	if err := Read(t.Context(), Output{&out, &out}, File{Root: file.Root, Path: "app/1.log"}, Options{},
		Deps{}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("another instance's log: %v", err)
	}
}

// TestReadOddParts checks that a part that a crash left in both forms is read once, and that a
// damaged part is read up to the damage. Links and temporary files are not parts.
func TestReadOddParts(t *testing.T) {
	file := rotated(t)
	dir := filepath.Join(file.Root, "app")
	zipped, err := os.ReadFile(filepath.Join(dir, "0.log.20260102-030401.gz"))
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"0.log.20260102-030403":     stamp(2) + " stdout F 2\n" + stamp(3) + " stdout F 3\n",
		"0.log.20260102-030405.tmp": "half", "0.log.20260102-030400.gz": "no gzip",
		"0.log.20260102-030401.gz": string(zipped[:len(zipped)-9]),
		"0.log.20260102-030402.gz": string(zipped[:len(zipped)/2]),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("0.log", filepath.Join(dir, "0.log.20260102-030404")); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := Read(t.Context(), Output{&out, &out}, file, Options{}, Deps{Log: discard()}); err != nil ||
		!strings.HasSuffix(out.String(), lines(2, 7)) {
		t.Errorf("read %q, %v", out.String(), err)
	}
	out.Reset()
	if err := Read(t.Context(), Output{&out, &out}, file, Options{Tail: ptr.To[int64](5)},
		Deps{Log: discard()}); err != nil || out.String() != lines(3, 7) {
		t.Errorf("the last five lines are %q, %v", out.String(), err)
	}
}

// TestFollowFromARotatedPart checks that a follower that begins in the rotated parts goes on with
// the current file.
func TestFollowFromARotatedPart(t *testing.T) {
	file := rotated(t)
	stopped := make(chan struct{})
	var out syncBuffer
	result := make(chan error)
	go func() {
		result <- Read(t.Context(), Output{&out, &out}, file, Options{Follow: true, Tail: ptr.To[int64](5)},
			Deps{Stopped: stopped, Interval: time.Hour})
	}()
	for got, grown := out.look(); got != lines(3, 7); got, grown = out.look() {
		<-grown
	}
	f, err := os.OpenFile(filepath.Join(file.Root, file.Path), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	fmt.Fprintf(f, "%s stdout F 8\n", stamp(8))
	for got, grown := out.look(); got != lines(3, 8); got, grown = out.look() {
		<-grown
	}
	close(stopped)
	if err := <-result; err != nil {
		t.Error(err)
	}
}

// TestFollowWhatWasCompressedMeanwhile checks that a follower that is slower than rotations and
// compressions loses no line and reads no line twice, as long as the successors of its own file
// exist.
func TestFollowWhatWasCompressedMeanwhile(t *testing.T) {
	for name, lost := range map[string][]string{
		"all there":          nil,
		"own part gone":      {"0.log.20260102-030405.gz"},
		"own and next gone":  {"0.log.20260102-030405.gz", "0.log.20260102-030406.gz"},
		"only the last left": {"0.log.20260102-030405.gz", "0.log.20260102-030406.gz", "0.log.20260102-030407"},
	} {
		t.Run(name, func(t *testing.T) {
			file := write(t, "$0 stdout F 1\n")
			path := filepath.Join(file.Root, file.Path)
			d, err := OpenDirectory(file.Root, "app")
			if err != nil {
				t.Fatal(err)
			}
			defer d.Close()
			gate := &gatedWriter{open: make(chan struct{}), reached: make(chan struct{})}
			stopped := make(chan struct{})
			result := make(chan error)
			go func() {
				result <- Read(t.Context(), Output{Stdout: gate}, file, Options{Follow: true}, Deps{Stopped: stopped})
			}()
			<-gate.reached // the follower has opened the first file
			want := lines(1, 1)
			for i, suffix := range []string{".20260102-030405", ".20260102-030406", ".20260102-030407"} {
				if err := os.Rename(path, path+suffix); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, fmt.Appendf(nil, "%s stdout F %d\n", stamp(i+1), i+2), 0o600); err != nil {
					t.Fatal(err)
				}
				if i < 2 {
					if err := d.Compress(t.Context(), "0.log"+suffix); err != nil {
						t.Fatal(err)
					}
				}
			}
			for _, name := range lost {
				if err := d.Remove(name); err != nil {
					t.Fatal(err)
				}
			}
			for i := range 3 { // of the three parts that follow its own
				if i+1 >= len(lost) {
					want += fmt.Sprintln(i + 2)
				}
			}
			close(stopped)
			close(gate.open)
			if err := <-result; err != nil || gate.buffer.String() != want {
				t.Errorf("read %q, %v, want %q", gate.buffer.String(), err, want)
			}
		})
	}
}

// TestOpenChainAtTheFirstRotation opens a log during its first rotation. The log is found under the
// one name or the other.
func TestOpenChainAtTheFirstRotation(t *testing.T) {
	for range 500 {
		file := write(t, "$0 stdout F 1\n")
		d, err := OpenDirectory(file.Root, "app")
		if err != nil {
			t.Fatal(err)
		}
		rotated := make(chan error, 1)
		go func() {
			_, err := d.Rotate("0.log", time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
			rotated <- err
		}()
		var out bytes.Buffer
		if err := Read(t.Context(), Output{&out, &out}, file, Options{}, Deps{}); err != nil || out.String() != "1\n" {
			t.Errorf("read %q, %v", out.String(), err)
		}
		if err := errors.Join(<-rotated, d.Close()); err != nil {
			t.Fatal(err)
		}
	}
}

func TestOpenChainOfALogInMotion(t *testing.T) {
	file := write(t, "")
	d, err := OpenDirectory(file.Root, "app")
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	path := filepath.Join(file.Root, file.Path)
	done := make(chan struct{})
	read, finished := make(chan struct{}, 1), make(chan struct{})
	defer close(finished)
	go func() {
		defer close(done)
		at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		for i := range 200 {
			if i%4 == 3 { // on a busy machine the reader may not run at all between two rotations
				select {
				case <-read:
				case <-finished:
					return
				}
			}
			name, err := d.Rotate("0.log", at)
			if err == nil {
				err = os.WriteFile(path, fmt.Appendf(nil, "%s stdout F %d\n", stamp(0), i+1), 0o600)
			}
			if err == nil {
				err = d.Compress(t.Context(), name)
			}
			if err != nil {
				t.Error(err)
				return
			}
		}
	}()
	for reads := 0; ; reads++ {
		var out bytes.Buffer
		if err := Read(t.Context(), Output{&out, &out}, file, Options{}, Deps{}); err != nil {
			t.Fatal(err)
		}
		n := strings.Count(out.String(), "\n")
		if out.String() != lines(1, n) {
			t.Fatalf("read %q", out.String())
		}
		select {
		case read <- struct{}{}:
		default:
		}
		select {
		case <-done:
			if n == 200 {
				t.Logf("%d reads", reads+1)
				return
			}
		default:
		}
	}
}
