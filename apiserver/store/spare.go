package store

import (
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// spare is etcd's name of a file that it makes before it needs it, as large as a file of its log.
// At its start etcd makes number 0, and uses one that is there.
func spare(dir, number string) string { return filepath.Join(journal(dir), number+".tmp") }

// reserveLog keeps room on the disk for the next start, which needs a spare file: etcd removes its
// own when it ends. Without room there is none, and the next start says so.
func reserveLog(dir string) {
	f, err := os.OpenFile(spare(dir, "0"), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return
	}
	defer f.Close()
	if unix.Fallocate(int(f.Fd()), 0, 0, logFile) != nil {
		_ = os.Remove(f.Name())
	}
}

// removeSpare removes the spare file of a process that was killed if etcd would make another one
// beside it at its start.
func removeSpare(dir string) { _ = os.Remove(spare(dir, "1")) }
