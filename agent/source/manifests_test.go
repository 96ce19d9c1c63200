package source

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// TestFileReturnsUnseen checks that a file that was deleted and created again has arrived again,
// even if the source reads both notices at once. Another version in the file's place has not.
func TestFileReturnsUnseen(t *testing.T) {
	for _, test := range []struct {
		name    string
		change  func(path string) error
		notices []uint32
		again   bool
	}{
		{"deleted and written", func(path string) error {
			return errors.Join(os.Remove(path), os.WriteFile(path, []byte(podManifest("a", "i")), 0o600))
		}, []uint32{unix.IN_DELETE, unix.IN_CREATE, unix.IN_CLOSE_WRITE}, true},
		{"deleted and renamed", func(path string) error {
			return errors.Join(os.Remove(path), os.WriteFile(path+"~", []byte(podManifest("a", "i")), 0o600),
				os.Rename(path+"~", path))
		}, []uint32{unix.IN_DELETE, unix.IN_MOVED_TO}, true},
		{"written again", func(path string) error {
			return os.WriteFile(path, []byte(podManifest("a", "i")), 0o600)
		}, []uint32{unix.IN_CLOSE_WRITE}, false},
		{"replaced by an editor", func(path string) error {
			return errors.Join(os.Rename(path, path+"~"), os.WriteFile(path, []byte(podManifest("a", "i")), 0o600))
		}, []uint32{unix.IN_MOVED_FROM, unix.IN_CREATE, unix.IN_CLOSE_WRITE}, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "a.yaml")
			if err := os.WriteFile(path, []byte(podManifest("a", "i")), 0o600); err != nil {
				t.Fatal(err)
			}
			f := NewFile(FileConfig{Path: filepath.Dir(path), NodeName: "n"}, FileDeps{})
			var last Snapshot
			f.out = func(s Snapshot) { last = s }
			defer f.stopWatching()
			f.lookThrough()
			before := last
			if err := test.change(path); err != nil {
				t.Fatal(err)
			}
			var batch []notice
			for _, mask := range test.notices {
				batch = append(batch, notice{watch: f.watcher.watch, mask: mask, name: "a.yaml"})
			}
			f.handle(batch)
			f.publish()
			if len(last.Pods) != 1 || last.Pods[0] != before.Pods[0] {
				t.Fatalf("the pods are %v, and were %v", last.Pods, before.Pods)
			}
			if again := last.Results[0].Arrival != before.Results[0].Arrival; again != test.again {
				t.Errorf("the file has arrived again: %t", again)
			}
		})
	}
}
