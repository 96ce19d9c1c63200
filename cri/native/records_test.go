package native

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/berthd/berth/internal/atomicfile"
)

// A process was killed while it wrote a record. The next one removes what is left of it.
func TestHalfWrittenRecord(t *testing.T) {
	dir := t.TempDir()
	r, err := openRecords[*sandboxRecord](dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.save("whole", &sandboxRecord{ID: "whole"}); err != nil {
		t.Fatal(err)
	}
	half := filepath.Join(dir, "half"+recordExtension+atomicfile.Unfinished)
	if err := os.WriteFile(half, []byte(`{"id":`), 0o600); err != nil {
		t.Fatal(err)
	}
	if all, err := r.all(); err != nil || len(all) != 1 || all[0].ID != "whole" {
		t.Errorf("the records are %v, %v", all, err)
	}
	if _, err := os.Stat(half); !os.IsNotExist(err) {
		t.Errorf("the half-written record is still there: %v", err)
	}
}
