package beneath

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// Each file is visited once, also if the names of a directory take several reads.
func TestTreeVisitsEachFileOnce(t *testing.T) {
	dir := t.TempDir()
	want := 0
	for i := range 700 {
		inner := filepath.Join(dir, fmt.Sprintf("%d%s", i, strings.Repeat("x", 100)), "inner")
		if err := os.MkdirAll(inner, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink("/", filepath.Join(inner, "link")); err != nil {
			t.Fatal(err)
		}
		want += 3
	}
	root, err := Root(dir, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(root) }()
	seen := map[string]int{}
	tree := &Tree{Visit: func(in Dir, name string) (bool, error) {
		seen[filepath.Join(in.Path, name)]++
		return name != "link", nil
	}}
	if err := tree.Walk(root); err != nil {
		t.Fatal(err)
	}
	if len(seen) != want {
		t.Errorf("%d files were visited, want %d", len(seen), want)
	}
	for path, times := range seen {
		if times != 1 {
			t.Errorf("%s was visited %d times", path, times)
		}
	}
}

// A directory that is replaced by a link before the walk enters it is left out.
func TestTreeFollowsNoLinks(t *testing.T) {
	dir, outside := t.TempDir(), t.TempDir()
	for _, path := range []string{dir + "/swapped", outside + "/precious"} {
		if err := os.Mkdir(path, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	root, err := Root(dir, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(root) }()
	var seen []string
	tree := &Tree{Visit: func(in Dir, name string) (bool, error) {
		seen = append(seen, filepath.Join(in.Path, name))
		if err := os.Remove(dir + "/swapped"); err != nil {
			return false, err
		}
		return true, os.Symlink(outside, dir+"/swapped")
	}}
	if err := tree.Walk(root); err != nil || len(seen) != 1 {
		t.Errorf("visited %q: %v", seen, err)
	}
}
