package output

import (
	"bytes"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// scene is the directory of an output, and a log.
type scene struct {
	*testing.T
	dir, path string
}

func newScene(t *testing.T) *scene {
	t.Helper()
	return &scene{t, t.TempDir(), filepath.Join(t.TempDir(), "main", "0.log")}
}

func (s *scene) open() *log {
	s.Helper()
	l, err := openLog(s.dir, s.path, slog.New(slog.NewTextHandler(s.Output(), nil)))
	if err != nil {
		s.Fatal(err)
	}
	l.now = func() time.Time { return stamp }
	s.Cleanup(l.close)
	return l
}

// comes adds output to the journal of a stream, as from its pipe.
func (s *scene) comes(l *log, stream Stream, text string) {
	s.Helper()
	j := l.journals[stream]
	if _, err := j.file.WriteAt([]byte(text), j.end); err != nil {
		s.Fatal(err)
	}
	j.end += int64(len(text))
}

func (s *scene) add(l *log, stream Stream, final bool) {
	s.Helper()
	if err := l.add(stream, final); err != nil {
		s.Fatal(err)
	}
}

// content returns a log without its times.
func (s *scene) content(path string) string {
	s.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		s.Fatal(err)
	}
	return strings.ReplaceAll(string(data), stamped, "")
}

func (s *scene) wants(path, want string) {
	s.Helper()
	if got := s.content(path); got != want {
		s.Errorf("the log is %q, want %q", got, want)
	}
}

// Two streams come in parts, also over a restart. A line is in the log when it is whole.
func TestLog(t *testing.T) {
	s := newScene(t)
	l := s.open()
	s.comes(l, Stdout, "a")
	s.add(l, Stdout, false)
	s.comes(l, Stderr, "b\n")
	s.add(l, Stderr, false)
	l.close()
	s.wants(s.path, "stderr F b\n")
	l = s.open()
	s.comes(l, Stdout, "c\nd")
	s.add(l, Stdout, true)
	s.add(l, Stderr, true)
	s.wants(s.path, "stderr F b\nstdout F ac\nstdout F d\n")
	l.close()
	if err := l.add(Stdout, false); err == nil {
		t.Error("a closed log was written")
	}
	if err := l.reopen(); err == nil {
		t.Error("a complete log was opened again")
	}
}

// A kill leaves the position as it was before a write or as it is in the middle of one, and the log
// cut anywhere. Whatever it was, the log is whole after the next start.
func TestLogIsCut(t *testing.T) {
	for name, final := range map[string]bool{"more comes": false, "final": true} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			l := s.open()
			s.comes(l, Stdout, "first\n")
			s.add(l, Stdout, false)
			old := int64(len(stamped + "stdout F first\n"))
			s.comes(l, Stdout, "second\nthird\nend")
			before := position{Done: l.at.Done}
			begun := write{
				From: l.at.Done[Stdout], To: l.at.Done[Stdout] + int64(len("second\nthird\n")), Time: stamp.UnixNano(),
				Final: final, Inode: inodeAt(t, s.path), Size: old,
			}
			if final {
				begun.To += int64(len("end"))
			}
			s.add(l, Stdout, final)
			l.close()
			whole, err := os.ReadFile(s.path)
			if err != nil {
				t.Fatal(err)
			}
			for cut := old; cut <= int64(len(whole)); cut++ {
				if err := os.Truncate(s.path, cut); err != nil {
					t.Fatal(err)
				}
				s.at(position{Done: before.Done, Begun: begun})
				l := s.open()
				s.add(l, Stdout, false)
				l.close()
				if got, err := os.ReadFile(s.path); err != nil || !bytes.Equal(got, whole) {
					t.Fatalf("cut to %d bytes: the log is %q, %v, want %q", cut, got, err, whole)
				}
			}
		})
	}
}

// at replaces the position on the disk.
func (s *scene) at(p position) {
	s.Helper()
	f, err := os.OpenFile(filepath.Join(s.dir, positionFile), os.O_RDWR, 0)
	if err != nil {
		s.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	if err := p.save(f); err != nil {
		s.Fatal(err)
	}
}

func inodeAt(t *testing.T, path string) uint64 {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return inodeOf(info)
}

// Berth is killed between the renaming of a log and its reopening, in the middle of a write. The
// rest of the lines goes to the file in which they begin. If that file is gone, so are they.
func TestLogIsMovedAway(t *testing.T) {
	for name, c := range map[string]struct{ moved, current string }{
		"0.log.20260102": {"stdout F a\nstdout F b\n", "stdout F c\n"},
		"":               {"", "stdout F c\n"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			l := s.open()
			s.comes(l, Stdout, "a\n")
			s.add(l, Stdout, false)
			s.comes(l, Stdout, "b\n")
			s.at(position{Done: l.at.Done, Begun: write{
				From: 2, To: 4, Time: stamp.UnixNano(), Inode: inodeAt(t, s.path),
				Size: int64(len(stamped + "stdout F a\n")),
			}})
			l.close()
			moved := filepath.Join(filepath.Dir(s.path), name)
			if name == "" {
				moved = filepath.Join(t.TempDir(), "elsewhere")
			}
			if err := os.Rename(s.path, moved); err != nil {
				t.Fatal(err)
			}
			l = s.open()
			s.comes(l, Stdout, "c\n")
			s.add(l, Stdout, false)
			if c.moved != "" {
				s.wants(moved, c.moved)
			}
			s.wants(s.path, c.current)
		})
	}
}

// A log is moved away while it is written.
func TestReopen(t *testing.T) {
	s := newScene(t)
	l := s.open()
	s.comes(l, Stdout, "old\nhalf")
	s.add(l, Stdout, false)
	if err := os.Rename(s.path, s.path+".1"); err != nil {
		t.Fatal(err)
	}
	if err := l.reopen(); err != nil {
		t.Fatal(err)
	}
	s.comes(l, Stdout, " a line\n")
	s.add(l, Stdout, false)
	s.wants(s.path+".1", "stdout F old\n")
	s.wants(s.path, "stdout F half a line\n")
}

// The files of a journal are cut or empty, as only somebody else can leave them. The log goes on
// with what comes next.
func TestJournalIsCut(t *testing.T) {
	for _, file := range []string{positionFile, "stdout" + journalSuffix} {
		for _, size := range []int64{0, 1} {
			s := newScene(t)
			l := s.open()
			s.comes(l, Stdout, "a\n")
			s.add(l, Stdout, false)
			l.close()
			if err := os.Truncate(filepath.Join(s.dir, file), size); err != nil {
				t.Fatal(err)
			}
			l = s.open()
			s.comes(l, Stdout, "b\n")
			s.add(l, Stdout, false)
			if got := s.content(s.path); !strings.HasSuffix(got, "stdout F b\n") {
				t.Errorf("%s of %d bytes: the log is %q", file, size, got)
			}
		}
	}
}

// What is in the log takes no space in the journal.
func TestJournalIsFreed(t *testing.T) {
	s := newScene(t)
	l := s.open()
	line := strings.Repeat("x", 999) + "\n"
	for range 4 * freeAfter / len(line) {
		s.comes(l, Stdout, line)
		s.add(l, Stdout, false)
		l.free(Stdout)
	}
	info, err := l.journals[Stdout].file.Stat()
	if err != nil {
		t.Fatal(err)
	}
	if taken := blocksOf(info) * 512; taken > 2*freeAfter {
		t.Errorf("the journal takes %d bytes", taken)
	}
}

func TestNobodyWantsTheLog(t *testing.T) {
	s := newScene(t)
	s.path = ""
	l := s.open()
	s.comes(l, Stdout, "a\n")
	s.add(l, Stdout, false)
	if err := l.reopen(); err != nil {
		t.Error(err)
	}
	if l.at.Done[Stdout] != 2 {
		t.Errorf("the position is %v", l.at)
	}
}

// The log cannot be written. The position goes on, and no part of a line stays.
func TestLogCannotBeWritten(t *testing.T) {
	s := newScene(t)
	l := s.open()
	_ = l.file.Close()
	var err error
	if l.file, err = os.OpenFile("/dev/full", os.O_WRONLY, 0); err != nil {
		t.Fatal(err)
	}
	s.comes(l, Stdout, "lost\n")
	s.add(l, Stdout, false)
	if err := os.Remove(s.path); err != nil {
		t.Fatal(err)
	}
	if err := l.reopen(); err != nil {
		t.Fatal(err)
	}
	s.comes(l, Stdout, "kept\n")
	s.add(l, Stdout, false)
	s.wants(s.path, "stdout F kept\n")
}

// Somebody who may write where the logs are has put something else at a log's name. Nothing is
// written through it, no new container starts with it, and one that was started runs on.
func TestLogIsNoFile(t *testing.T) {
	for name, put := range map[string]func(path, target string) error{
		"a link":      func(path, target string) error { return os.Symlink(target, path) },
		"a pipe":      func(path, _ string) error { return unix.Mkfifo(path, 0o600) },
		"a directory": func(path, _ string) error { return os.Mkdir(path, 0o700) },
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			target := filepath.Join(t.TempDir(), "of the node")
			if err := os.WriteFile(target, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			l := s.open()
			l.close()
			if err := os.Remove(s.path); err != nil {
				t.Fatal(err)
			}
			if err := put(s.path, target); err != nil {
				t.Fatal(err)
			}
			if l, err := openLog(t.TempDir(), s.path, slog.New(slog.DiscardHandler)); err == nil {
				l.close()
				t.Error("a new container has it as its log")
			}
			l = s.open()
			s.comes(l, Stdout, "lost\n")
			s.add(l, Stdout, false)
			if err := l.reopen(); err == nil {
				t.Error("it was opened as the log")
			}
			if data, err := os.ReadFile(target); err != nil || len(data) > 0 {
				t.Errorf("%q was written to a file of the node, %v", data, err)
			}
			if err := os.Remove(s.path); err != nil {
				t.Fatal(err)
			}
			if err := l.reopen(); err != nil {
				t.Fatal(err)
			}
			s.comes(l, Stdout, "kept\n")
			s.add(l, Stdout, false)
			s.wants(s.path, "stdout F kept\n")
		})
	}
}

// The lines that an earlier process was writing cannot be completed. The container runs on.
func TestLogCannotBeCompleted(t *testing.T) {
	s := newScene(t)
	l := s.open()
	s.comes(l, Stdout, "a\n")
	l.close()
	if err := os.Remove(s.path); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(s.path, 0o600); err != nil {
		t.Fatal(err)
	}
	s.at(position{Begun: write{To: 2, Time: stamp.UnixNano(), Inode: inodeAt(t, s.path)}})
	l = s.open()
	if l.at.Done[Stdout] != 2 {
		t.Errorf("the position is %v", l.at)
	}
}

// blocksOf returns how many blocks of 512 bytes a file takes.
func blocksOf(info fs.FileInfo) int64 { return statOf(info).Blocks }
