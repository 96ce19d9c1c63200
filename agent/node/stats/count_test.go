package stats

import (
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A container can make millions of files in one directory. The memory that their count takes does
// not grow with them.
func TestCountOfManyFilesTakesNoMemory(t *testing.T) {
	dir := t.TempDir()
	for i := range 20_000 {
		write(t, filepath.Join(dir, strconv.Itoa(i)), "")
	}
	var before, after runtime.MemStats
	most := uint64(0)
	runtime.GC()
	runtime.ReadMemStats(&before)
	got, err := count(dir, func(size) error {
		runtime.GC()
		runtime.ReadMemStats(&after)
		most = max(most, after.HeapAlloc)
		return nil
	})
	if err != nil || got.inodes != 20_001 {
		t.Errorf("%+v, %v", got, err)
	}
	if most > before.HeapAlloc+512<<10 {
		t.Errorf("the count held %d bytes", most-before.HeapAlloc)
	}
}

// What a count remembers of files with several names is bounded. Those beyond that count by name.
func TestCountOfManyHardLinks(t *testing.T) {
	const files, most = 100, 10
	dir := t.TempDir()
	for i := range files {
		name := filepath.Join(dir, strconv.Itoa(i))
		write(t, name, "")
		if err := os.Link(name, name+"-again"); err != nil {
			t.Fatal(err)
		}
	}
	c := &counting{linked: map[uint64]struct{}{}, maxLinked: most}
	got, err := c.count(dir)
	if want := uint64(1 + most + 2*(files-most)); err != nil || got.inodes != want {
		t.Errorf("%d files, want %d: %v", got.inodes, want, err)
	}
	if len(c.linked) != most {
		t.Errorf("%d files are remembered, want %d", len(c.linked), most)
	}
	if got, err := count(dir, nil); err != nil || got.inodes != files+1 {
		t.Errorf("a usual count: %d files, want %d: %v", got.inodes, files+1, err)
	}
}

// Directories that are nested without end neither keep the count busy for ever nor hide anything.
func TestCountOfADeepDirectory(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "z"), string(make([]byte, 1<<20)))
	at, err := unix.Open(dir, unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	for range 6000 {
		if err := unix.Mkdirat(at, "d", 0o700); err != nil {
			t.Fatal(err)
		}
		next, err := unix.Openat(at, "d", unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		_ = unix.Close(at)
		at = next
	}
	_ = unix.Close(at)
	t.Cleanup(func() { removeDeep(t, dir) })
	began := time.Now()
	got, err := count(dir, func(size) error { return nil })
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		t.Fatal(err)
	}
	if inUse := (st.Blocks - st.Bfree) * uint64(st.Bsize); err != nil || got.bytes < inUse/2 {
		t.Errorf("%+v of %d bytes in use, %v", got, inUse, err)
	}
	if took := time.Since(began); took > time.Minute {
		t.Errorf("the count took %s", took)
	}
}

// removeDeep removes directories d that are nested deeper than paths can be long.
func removeDeep(t *testing.T, dir string) {
	t.Helper()
	for range 100_000 {
		inner := filepath.Join(dir, "d", "d")
		if _, err := os.Lstat(inner); err != nil {
			return
		}
		outer := filepath.Join(dir, "outer")
		if err := os.Rename(filepath.Join(dir, "d"), outer); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(filepath.Join(outer, "d"), filepath.Join(dir, "d")); err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(outer); err != nil {
			t.Fatal(err)
		}
	}
}
