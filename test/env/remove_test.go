package env

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
)

// TestRemoveWhileWritten removes a folder to which others still write, as a CNI plugin does that
// has outlived its containerd.
func TestRemoveWhileWritten(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "slot")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	var started, ended sync.WaitGroup
	for writer := range 4 {
		started.Add(1)
		ended.Go(func() {
			for i := range 500 {
				err := os.Mkdir(filepath.Join(dir, fmt.Sprintf("%d-%d", writer, i)), 0o700)
				if i == 0 {
					started.Done()
				}
				if err != nil {
					return // the folder is gone
				}
			}
		})
	}
	started.Wait()
	if err := removeTree(dir); err != nil {
		t.Error(err)
	}
	ended.Wait()
	if _, err := os.Lstat(dir); !os.IsNotExist(err) {
		t.Errorf("the folder is still there: %v", err)
	}
}
