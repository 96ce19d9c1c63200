package native

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berthd/berth/cri/internal/streams"
	"github.com/berthd/berth/internal/atomicfile"
	"github.com/berthd/berth/internal/flock"
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
		aside := filepath.Join(dir, id+recordExtension+damagedExtension)
		if got, err := os.ReadFile(aside); err != nil || string(got) != text {
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

// On a full disk, what was found to be so counts all the same: a start of the runtime goes on, and
// a sandbox is stopped.
func TestFullDiskTakesNoRecord(t *testing.T) {
	dir := t.TempDir()
	kept, err := newStore(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = flock.Release(kept.lock) }()
	r := &Runtime{
		cfg:   Config{StateDir: t.TempDir(), Logger: slog.New(slog.NewTextHandler(t.Output(), nil))},
		store: kept, events: broadcaster{boxes: map[*streams.Mailbox]bool{}},
	}
	config := &runtimeapi.PodSandboxConfig{Metadata: &runtimeapi.PodSandboxMetadata{Name: "a", Namespace: "b", Uid: "c"}}
	record := sandboxRecord{ID: "sb", Config: message[*runtimeapi.PodSandboxConfig]{config}, Up: true}
	if err := kept.sandboxRecords.save("sb", &record); err != nil {
		t.Fatal(err)
	}
	// no file can be written where directories have the names of the unfinished ones
	for _, path := range []string{"sandboxes/sb", "containers/c"} {
		if err := os.Mkdir(filepath.Join(dir, path+recordExtension+atomicfile.Unfinished), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	sb := newSandbox(record)
	if err := r.restoreSandbox(t.Context(), sb); err != nil || sb.record.Up {
		t.Errorf("a sandbox whose namespaces are gone: %v, %+v", err, sb.record)
	}
	r.noteSandbox(sb, func(rec *sandboxRecord) { rec.Stopped = true })
	c := newContainer(containerRecord{ID: "c", SandboxID: "sb"}, "c")
	r.noteContainer(c, func(rec *containerRecord) { rec.FinishedAt = 1 })
	if got := c.snapshot(); !sb.record.Stopped || got.state() != runtimeapi.ContainerState_CONTAINER_EXITED {
		t.Errorf("%+v, %+v", sb.record, got)
	}
}
