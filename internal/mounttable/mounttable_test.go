package mounttable

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

func TestMountsAreThoseOfTheLibrary(t *testing.T) {
	want, err := mountinfo.GetMounts(nil)
	if err != nil {
		t.Fatal(err)
	}
	got, err := Mounts()
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for _, m := range got {
		found[m.Mountpoint] = true
	}
	// Other tests mount and unmount meanwhile.
	if !found["/"] || !found["/proc"] || len(got) < len(want)/2 {
		t.Errorf("%d mounts, the library finds %d", len(got), len(want))
	}
}

func TestLinesOfAnyLength(t *testing.T) {
	long := strings.Repeat("/"+strings.Repeat("d", 255), 300)
	table := strings.Join([]string{
		`21 1 0:20 / / rw shared:1 - overlay overlay rw`,
		`22 21 0:21 ` + long + ` /a\040b rw,relatime shared:2 - tmpfs tmpfs rw,size=1k`,
		`23 21 0:22 / ` + long + ` rw - tmpfs tmpfs rw`,
		`24 21 0:23 / /lower rw master:3 - overlay overlay rw,lowerdir=` + long,
		`25 21 0:24 /in /last rw - tmpfs tmpfs rw`,
	}, "\n") + "\n"
	mounts, err := parse(strings.NewReader(table), all)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, m := range mounts {
		got = append(got, m.Mountpoint+" "+m.Root+" "+m.FSType+" "+m.Optional)
	}
	want := "/ / overlay shared:1|/a b " + TooLong + " tmpfs shared:2|/lower / overlay master:3|/last /in tmpfs "
	if s := strings.Join(got, "|"); s != want {
		t.Errorf("mounts\n%.900s\nwant\n%s", s, want)
	}
}

// of is [Of] as a list.
func of(path string) ([]*mountinfo.Info, error) {
	m, err := Of(path)
	return []*mountinfo.Info{m}, err
}

// A table that the kernel cannot write to its end is known as far as it goes.
func TestTableThatEndsEarly(t *testing.T) {
	table := io.MultiReader(strings.NewReader("25 21 0:24 /in /first rw - tmpfs tmpfs rw\n"),
		iotest.ErrReader(unix.ENAMETOOLONG))
	mounts, err := parse(table, all)
	if !errors.Is(err, unix.ENAMETOOLONG) || len(mounts) != 1 || mounts[0].Mountpoint != "/first" {
		t.Errorf("%v, %v", mounts, err)
	}
}

// all selects all mount points.
func all([]byte) bool { return true }

// Only what is asked for is found, in directories with any name, too.
func TestMountsOfADirectory(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("mounts need root")
	}
	top := t.TempDir()
	tree := []string{"", "/a", "/a b", "/a b/c\\d", "/a b/c\\d/\te\n", "/ab", "/a b"}
	for _, dir := range tree {
		if err := os.MkdirAll(top+dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := unix.Mount("none", top+dir, "tmpfs", 0, "size=4k"); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = unix.Unmount(top+dir, unix.MNT_DETACH) }()
	}
	for _, test := range []struct {
		what func(string) ([]*mountinfo.Info, error)
		path string
		want []string
	}{
		{Beneath, "", tree},
		{Beneath, "/a", []string{"/a"}},
		{Beneath, "/a b", []string{"/a b", "/a b/c\\d", "/a b/c\\d/\te\n", "/a b"}},
		{Beneath, "/nothing", nil},
		{On, "/a b", []string{"/a b", "/a b"}},
		{On, "/a b/c", nil},
		{of, "/a b/c\\d/x", []string{"/a b/c\\d"}},
		{of, "/a b/x", []string{"/a b"}},
		{of, "/abc", []string{""}},
	} {
		mounts, err := test.what(top + test.path)
		var got []string
		for _, m := range mounts {
			if below, ok := strings.CutPrefix(m.Mountpoint, top); ok {
				got = append(got, below)
			}
		}
		if err != nil || !slices.Equal(got, test.want) {
			t.Errorf("of %q: %q, %v, want %q", test.path, got, err, test.want)
		}
	}
	if mounts, err := Beneath("/"); err != nil || len(mounts) < len(tree) {
		t.Errorf("of all: %d mounts, %v", len(mounts), err)
	}
}

// TestLongLinesAreNotHeld reads a line that is longer than any buffer, and holds a part of it.
func TestLongLinesAreNotHeld(t *testing.T) {
	table := io.MultiReader(strings.NewReader("22 21 0:21 /"), io.LimitReader(endless{}, 64<<20),
		strings.NewReader(" /a rw - tmpfs tmpfs rw\n25 21 0:24 /in /last rw - tmpfs tmpfs rw\n"))
	var mounts []*mountinfo.Info
	var err error
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	mounts, err = parse(table, all)
	runtime.ReadMemStats(&after)
	if err != nil || len(mounts) != 2 || mounts[0].Root != TooLong || mounts[0].Mountpoint != "/a" {
		t.Errorf("%v, %v", mounts, err)
	}
	if took := after.TotalAlloc - before.TotalAlloc; took > 1<<20 {
		t.Errorf("it took %d bytes", took)
	}
}

// endless reads as a directory's name that does not end.
type endless struct{}

func (endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'd'
	}
	return len(p), nil
}

// BenchmarkTable reads a table of a node with many pods: all of it, and what one directory has.
func BenchmarkTable(b *testing.B) {
	var table strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&table, "%d 21 0:%d / /var/lib/kubelet/pods/%d/volumes/kubernetes.io~projected/token rw,relatime "+
			"shared:%d - tmpfs tmpfs rw,size=65536k,inode64\n", i+100, i+100, i, i)
	}
	for name, at := range map[string]func([]byte) bool{
		"all": all,
		"one": func(point []byte) bool { return bytes.HasPrefix(point, []byte("/var/lib/kubelet/pods/500/")) },
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if _, err := parse(strings.NewReader(table.String()), at); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
