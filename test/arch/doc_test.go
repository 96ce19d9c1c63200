package arch

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

// TestArchitectureNamesWhatIsThere checks that every file and folder that agent/doc.go names
// exists: a newcomer follows these names.
func TestArchitectureNamesWhatIsThere(t *testing.T) {
	root := checkout(t)
	text, err := os.ReadFile(filepath.Join(root, "agent", "doc.go"))
	if err != nil {
		t.Fatal(err)
	}
	names := regexp.MustCompile(`\b(agent|status|test|cri|internal)/[a-z0-9_/]+(\.go)?`).FindAllString(string(text), -1)
	if len(names) < 15 {
		t.Errorf("found only %d names: %q", len(names), names)
	}
	for _, name := range names {
		if _, err := os.Stat(filepath.Join(root, name)); err != nil {
			t.Errorf("agent/doc.go names %s: %v", name, err)
		}
	}
}
