package env

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
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

// TestRemoveEndsKeepers ends what a killed native runtime left: a process that waits for a byte
// from a pipe of the folder.
func TestRemoveEndsKeepers(t *testing.T) {
	l := Layout{Dir: t.TempDir()}
	keep := filepath.Join(l.Dir, "keep")
	if err := unix.Mkfifo(keep, 0o600); err != nil {
		t.Fatal(err)
	}
	pipe, err := os.OpenFile(keep, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer pipe.Close()
	keeper := exec.CommandContext(t.Context(), "head", "-c", "1")
	keeper.Stdin = pipe
	if err := keeper.Start(); err != nil {
		t.Fatal(err)
	}
	if left := (Layout{Dir: t.TempDir()}).keepers(); len(left) > 0 {
		t.Errorf("another environment has %v", left)
	}
	if err := killAll("keeper", l.keepers); err != nil {
		t.Fatal(err)
	}
	_ = keeper.Wait() // it ends: it was killed
}
