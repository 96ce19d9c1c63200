package store

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// Lock takes a data directory for this process until it ends or unlock is called. It makes the
// directory where it is missing, and lets only its owner enter it. It refuses a directory with the
// files of others that is open to more than its owner.
func Lock(dataDir string) (unlock func(), err error) {
	if err := os.MkdirAll(dataDir, 0o700); err != nil {
		return nil, fmt.Errorf("make the data directory: %w", err)
	}
	if err := closeToOthers(dataDir); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(lockFile(dataDir), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock the data directory: %w", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("another berth-apiserver uses %s: stop it, or choose another --data-dir", dataDir)
		}
		return nil, fmt.Errorf("lock the data directory %s: %w", dataDir, err)
	}
	return func() { f.Close() }, nil
}

func lockFile(dataDir string) string { return filepath.Join(dataDir, "lock") }

// closeToOthers lets only the owner enter the directory if it is empty or has been a data directory
// before. It changes no other directory: --data-dir /tmp must not close /tmp.
func closeToOthers(dataDir string) error {
	info, err := os.Stat(dataDir)
	if err != nil {
		return fmt.Errorf("look at the data directory: %w", err)
	}
	if info.Mode().Perm()&0o077 == 0 {
		return nil
	}
	entries, err := os.ReadDir(dataDir)
	if err != nil {
		return fmt.Errorf("look into the data directory: %w", err)
	}
	if len(entries) > 0 && !usedBefore(dataDir) {
		return fmt.Errorf("%s has other files, and others may enter it (mode %04o): choose an empty --data-dir, or run "+
			"\"chmod 0700 %s\" if it is for berth-apiserver alone", dataDir, info.Mode().Perm(), dataDir)
	}
	if err := os.Chmod(dataDir, 0o700); err != nil { // #nosec: a directory needs its x
		return fmt.Errorf("close the data directory to others: %w", err)
	}
	return nil
}

// usedBefore says whether a directory has the file of a lock, or keys that were copied to it. Other
// directories have the names, too, but not as these files: /run/lock, /etc/pki, /var/lib/etcd.
func usedBefore(dataDir string) bool {
	for _, path := range []string{lockFile(dataDir), filepath.Join(dataDir, "pki", "service-accounts.key")} {
		if info, err := os.Lstat(path); err == nil && info.Mode().IsRegular() {
			return true
		}
	}
	return false
}
