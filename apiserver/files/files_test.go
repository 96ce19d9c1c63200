package files

import (
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// TestRemoveLeftovers has a process end in the middle of a new file. What it wrote goes, and files
// that somebody else made stay.
func TestRemoveLeftovers(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "ca.key")
	var left string
	_ = Replace(path, func(w io.Writer) error {
		left = w.(*os.File).Name()
		return os.Link(left, left+"0") // as it stays when nobody removes it
	})
	others := []string{".ca.key.backup", ".other.key.123", "ca.key", "ca.key.1"}
	for _, name := range others {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := RemoveLeftovers(path); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if !slices.Equal(names, others) {
		t.Errorf("there is %v, want %v", names, others)
	}
}
