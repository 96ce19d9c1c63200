package native

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/berthd/berth/internal/atomicfile"
)

// A power loss leaves records that are empty or cut off. The others are there all the same.
func TestDamagedRecord(t *testing.T) {
	dir := t.TempDir()
	r, err := openRecords[*sandboxRecord](dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.save("whole", &sandboxRecord{ID: "whole"}); err != nil {
		t.Fatal(err)
	}
	bad := map[string]string{"empty": "", "cut": `{"id":"cut","conf`, "null": "null", "other": `{"id":"whole"}`}
	for id, text := range bad {
		if err := os.WriteFile(filepath.Join(dir, id+recordExtension), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := r.all(); err == nil {
		t.Error("who looks does not learn of the damage")
	}
	if all, damaged, err := r.load(); err != nil || len(damaged) != len(bad) || len(all) != 1 || all[0].ID != "whole" {
		t.Errorf("the records are %v, %v, %v", all, damaged, err)
	}
	for id, text := range bad {
		if got, err := os.ReadFile(filepath.Join(dir, id+recordExtension+damagedExtension)); err != nil || string(got) != text {
			t.Errorf("what was set aside of %s is %q, %v", id, got, err)
		}
	}
	if all, damaged, err := r.load(); err != nil || len(damaged) > 0 || len(all) != 1 {
		t.Errorf("then the records are %v, %v, %v", all, damaged, err)
	}
}

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
	// who only looks must not take away what another process is writing
	if all, err := r.all(); err != nil || len(all) != 1 || all[0].ID != "whole" {
		t.Errorf("the records are %v, %v", all, err)
	}
	if _, err := os.Stat(half); err != nil {
		t.Errorf("a look has removed the record that is being written: %v", err)
	}
	if all, damaged, err := r.load(); err != nil || len(damaged) > 0 || len(all) != 1 || all[0].ID != "whole" {
		t.Errorf("the records are %v, %v, %v", all, damaged, err)
	}
	if _, err := os.Stat(half); !os.IsNotExist(err) {
		t.Errorf("the half-written record is still there: %v", err)
	}
}
