package mounttable

import (
	"io"
	"runtime"
	"strings"
	"testing"

	"github.com/moby/sys/mountinfo"
)

func TestMountsAreThoseOfTheLibrary(t *testing.T) {
	want, err := mountinfo.GetMounts(nil)
	if err != nil {
		t.Fatal(err)
	}
	got, err := Mounts(nil)
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
	mounts, err := parse(strings.NewReader(table), nil)
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
	one, err := parse(strings.NewReader(table), mountinfo.SingleEntryFilter("/last"))
	if err != nil || len(one) != 1 || one[0].ID != 25 {
		t.Errorf("of one mount point: %v, %v", one, err)
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
	mounts, err = parse(table, nil)
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
