package history

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// disk has segments whose writes fail after room bytes; a negative room has no end.
type disk struct {
	segments
	room int
	now  time.Time
}

func newDisk(t *testing.T, maxBytes int64) *disk {
	t.Helper()
	d := &disk{room: -1, now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	d.segments = segments{dir: filepath.Join(t.TempDir(), "history"), maxBytes: maxBytes, maxAge: 24 * time.Hour}
	d.append = func(f *os.File, text []byte) (int, error) {
		if d.room < 0 || len(text) <= d.room {
			return f.Write(text)
		}
		n, err := f.Write(text[:d.room])
		if err != nil {
			t.Error(err)
		}
		return n, syscall.ENOSPC
	}
	t.Cleanup(d.close)
	return d
}

// put writes lines three seconds after the last ones.
func (d *disk) put(lines ...string) error {
	d.now = d.now.Add(3 * time.Second)
	return d.write([]byte(strings.Join(lines, "\n")+"\n"), d.now)
}

// read returns what all segments have, and how many there are.
func (d *disk) read(t *testing.T) (text string, files int) {
	t.Helper()
	list, err := d.list()
	if err != nil {
		t.Fatal(err)
	}
	for _, seg := range list {
		part, err := os.ReadFile(seg.path)
		if err != nil {
			t.Fatal(err)
		}
		text += string(part)
	}
	return text, len(list)
}

func (d *disk) want(t *testing.T, wantText string, wantFiles int) {
	t.Helper()
	if text, files := d.read(t); text != wantText || files != wantFiles {
		t.Errorf("%d files with %.200q, want %d with %.200q", files, text, wantFiles, wantText)
	}
}

// A full disk gets no file at each write, and no part of a line.
func TestFullDisk(t *testing.T) {
	d := newDisk(t, 1<<20)
	for _, d.room = range []int{0, 2, 0, 3} {
		if err := d.put("lost"); err == nil {
			t.Fatal("a full disk takes a line")
		}
		d.want(t, "", 0)
	}
	d.room = -1
	if err := d.put("first"); err != nil {
		t.Fatal(err)
	}
	for _, d.room = range []int{0, 2, 0, 3} {
		if err := d.put("lost"); err == nil {
			t.Fatal("a full disk takes a line")
		}
		d.want(t, "first\n", 1)
	}
	d.room = -1
	if err := d.put("second"); err != nil {
		t.Fatal(err)
	}
	d.want(t, "first\nsecond\n", 1)
}

// A segment that cannot be truncated ends with a torn line, and the next one begins.
func TestTornByAFault(t *testing.T) {
	d := newDisk(t, 1<<20)
	if err := d.put("first"); err != nil {
		t.Fatal(err)
	}
	write := d.append
	d.append = func(f *os.File, text []byte) (int, error) {
		n, err := f.Write(text[:2])
		if err == nil {
			err = f.Close()
		}
		if err != nil {
			t.Error(err)
		}
		return n, syscall.EIO
	}
	if err := d.put("lost"); err == nil {
		t.Fatal("the fault is not reported")
	}
	d.append = write
	if err := d.put("second"); err != nil {
		t.Fatal(err)
	}
	d.want(t, "first\nlosecond\n", 2)
}

// Many lines at once go into several segments, and the oldest ones of them leave for the others.
func TestMuchAtOnce(t *testing.T) {
	const most = 8 << 10
	for _, count := range []int{10, 70, 300} {
		d := newDisk(t, most)
		var lines []string
		for i := range count {
			lines = append(lines, fmt.Sprintf("%099d", i))
		}
		if err := d.put(lines...); err != nil {
			t.Fatal(err)
		}
		text, files := d.read(t)
		whole := strings.Join(lines, "\n") + "\n"
		if !strings.HasSuffix(whole, text) || len(text) > most || len(text) < min(len(whole), most/2) || files > parts+1 {
			t.Errorf("%d lines: %d bytes in %d files", count, len(text), files)
		}
		list, err := d.list()
		for _, seg := range list {
			if seg.size > most/parts {
				t.Errorf("%s has %d bytes", seg.path, seg.size)
			}
		}
		if err != nil {
			t.Error(err)
		}
	}
}

// A line that is longer than a segment has one for itself.
func TestLongLine(t *testing.T) {
	d := newDisk(t, 800)
	long := strings.Repeat("x", 300)
	if err := d.put("a", long, "b"); err != nil {
		t.Fatal(err)
	}
	d.want(t, "a\n"+long+"\nb\n", 3)
}

// An agent that is restarted again and again keeps a bounded number of files.
func TestManyRuns(t *testing.T) {
	d := newDisk(t, 1<<20)
	for i := range maxSegments + 40 {
		if err := d.put(fmt.Sprint(i)); err != nil {
			t.Fatal(err)
		}
		d.close()
	}
	text, files := d.read(t)
	if files != maxSegments || !strings.HasPrefix(text, "40\n41\n") {
		t.Errorf("%d files from %.10q on", files, text)
	}
}
