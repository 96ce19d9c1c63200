package store

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// Lock takes a data directory for this process until it ends or unlock is called. It makes the
// directory where it is missing, and lets only its owner enter it. It refuses a directory with the
// files of others that is open to more than its owner, and one that is another user's.
func Lock(dataDir string) (unlock func(), err error) {
	err = os.MkdirAll(dataDir, 0o700)
	if errors.Is(err, fs.ErrPermission) {
		return nil, fmt.Errorf("make the data directory (run this command as root, or choose another --data-dir): %w", err)
	}
	if err != nil {
		return nil, fmt.Errorf("make the data directory: %w", err)
	}
	if err := refuseOthers(dataDir); err != nil {
		return nil, err
	}
	if err := closeToOthers(dataDir); err != nil {
		return nil, err
	}
	// From here on nobody else can put anything there.
	for _, path := range []string{filepath.Join(dataDir, "pki"), folder(dataDir)} {
		if err := refuseOthers(path); err != nil {
			return nil, err
		}
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

// refuseOthers returns an error if a directory, or the link that leads to it, is not of the user as
// whom this process runs: the owner could give the server his own authority, and so may do
// everything. A link may also be root's, as systemd makes one for a service with DynamicUser=. It
// says nothing of a directory that is missing.
func refuseOthers(path string) error {
	for _, look := range []func(string) (fs.FileInfo, error){os.Lstat, os.Stat} {
		info, err := look(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("look whose the data directory is: %w", err)
		}
		stat, ok := info.Sys().(*syscall.Stat_t)
		if !ok {
			return fmt.Errorf("look whose %s is: the system does not say it", path)
		}
		owner, link := int(stat.Uid), info.Mode()&fs.ModeSymlink != 0
		if owner == os.Geteuid() || link && owner == 0 {
			continue
		}
		return foreign(path, owner, os.Geteuid(), link)
	}
	return nil
}

// foreign is the error of a directory, or of the link to it, whose owner is another user than the one
// as whom this process runs.
func foreign(path string, owner, user int, link bool) error {
	if user != 0 { // and may give nobody's files to anybody
		return fmt.Errorf("%s belongs to the user with uid %d: run this command as that user, or choose another --data-dir",
			path, owner)
	}
	what := path
	if !link {
		what += "/" // chown -R goes through no link, but for a slash after its name
	}
	return fmt.Errorf("%s belongs to the user with uid %d, who could give the server other keys: if nobody has changed "+
		"what is in it, run \"chown -hR %d %s\", or choose another --data-dir", path, owner, user, what)
}

// MayNot adds to an error who may use a data directory, if the error is that this process may not.
func MayNot(dataDir string, err error) error {
	if !errors.Is(err, fs.ErrPermission) {
		return err
	}
	who := "root"
	if info, err := os.Stat(dataDir); err == nil {
		if stat, ok := info.Sys().(*syscall.Stat_t); ok && stat.Uid != 0 {
			who = fmt.Sprintf("root or as the user with uid %d", stat.Uid)
		}
	}
	return fmt.Errorf("%s is for its owner alone, run this command as %s: %w", dataDir, who, err)
}

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
func usedBefore(dataDir string) bool { return isFile(lockFile(dataDir)) || isFile(lastKey(dataDir)) }

// lastKey is the last key that package pki makes.
func lastKey(dataDir string) string { return filepath.Join(dataDir, "pki", "service-accounts.key") }

func isFile(path string) bool {
	info, err := os.Lstat(path)
	return err == nil && info.Mode().IsRegular()
}
