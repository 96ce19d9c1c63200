//go:build integration

package env

import (
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// TestSilentServer asks the file system while its server answers, and after it fell silent: then
// whoever asks gets no answer until the server is closed.
func TestSilentServer(t *testing.T) {
	dir := t.TempDir()
	s := MountSilent(t, dir)
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil || st.Blocks != 1<<20 {
		t.Errorf("statfs: %+v %v", st, err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
		t.Errorf("the files: %v %v", entries, err)
	}
	if _, err := os.Lstat(dir + "/none"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file that is not there: %v", err)
	}
	s.FallSilent()
	asked := make(chan error, 1)
	go func() { asked <- unix.Statfs(dir, new(unix.Statfs_t)) }()
	Eventually(t, "the server to get the request", func() error {
		if s.dropped.Load() == 0 {
			return errors.New("it got none")
		}
		return nil
	})
	select {
	case err := <-asked:
		t.Errorf("it answered: %v", err)
	default:
	}
	s.Close()
	if err := <-asked; err == nil {
		t.Error("statfs succeeded without a server")
	}
}
