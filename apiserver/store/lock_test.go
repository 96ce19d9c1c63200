package store_test

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/berthd/berth/apiserver/store"
)

// mode returns the permissions of a directory.
func mode(t *testing.T, dir string) os.FileMode {
	t.Helper()
	info, err := os.Stat(dir)
	if err != nil {
		t.Fatal(err)
	}
	return info.Mode().Perm()
}

func TestLockClosesOnlyItsOwnDirectory(t *testing.T) {
	for name, c := range map[string]struct {
		has     []string // files; a folder ends with a slash
		mode    os.FileMode
		refused bool
	}{
		"empty":                  {nil, 0o755, false},
		"used before":            {[]string{"lock"}, 0o755, false},
		"with copied keys":       {[]string{"pki/", "pki/service-accounts.key"}, 0o755, false},
		"of others":              {[]string{"file"}, 0o755, true},
		"of others, like /run":   {[]string{"lock/"}, 0o755, true},
		"of others, like /etc":   {[]string{"pki/", "pki/file"}, 0o755, true},
		"of others, for a group": {[]string{"file"}, 0o750, true},
		"of others, but closed":  {[]string{"file"}, 0o700, false},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for _, path := range c.has {
				var err error
				if folder, ok := strings.CutSuffix(path, "/"); ok {
					err = os.Mkdir(filepath.Join(dir, folder), 0o700)
				} else {
					err = os.WriteFile(filepath.Join(dir, path), nil, 0o600)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			if err := os.Chmod(dir, c.mode); err != nil {
				t.Fatal(err)
			}
			unlock, err := store.Lock(dir)
			if err == nil {
				unlock()
			}
			if refused := err != nil && strings.Contains(err.Error(), "--data-dir"); refused != c.refused {
				t.Fatalf("the lock says %v", err)
			}
			want := os.FileMode(0o700)
			if c.refused {
				want = c.mode
			}
			if got := mode(t, dir); got != want {
				t.Errorf("the mode is %v, want %v", got, want)
			}
		})
	}
}

// TestLockRefusesWhatIsAnotherUsers shows that nobody else can own the directory, or the keys and the
// content in it: such a user could put his own authority there.
func TestLockRefusesWhatIsAnotherUsers(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root may give a directory to another user")
	}
	const other = 65534
	for name, c := range map[string]struct {
		links   map[string]string // from a path in the directory to a folder
		folders []string
		owned   string // what is the other user's
		refused string // what the error names
	}{
		"nothing":             {nil, []string{"data/pki", "data/etcd"}, "", ""},
		"the directory":       {nil, []string{"data"}, "data", "data"},
		"the keys":            {nil, []string{"data/pki", "data/etcd"}, "data/pki", "data/pki"},
		"the content":         {nil, []string{"data/pki", "data/etcd"}, "data/etcd", "data/etcd"},
		"root's link":         {map[string]string{"data": "real"}, []string{"real"}, "", ""},
		"a link":              {map[string]string{"data": "real"}, []string{"real"}, "data", "data"},
		"what a link means":   {map[string]string{"data": "real"}, []string{"real"}, "real", "data"},
		"a link to the keys":  {map[string]string{"data/pki": "keys"}, []string{"data", "keys"}, "data/pki", "data/pki"},
		"keys beyond a link":  {map[string]string{"data/pki": "keys"}, []string{"data", "keys"}, "keys", "data/pki"},
		"a link that dangles": {map[string]string{"data/etcd": "no"}, []string{"data"}, "data/etcd", "data/etcd"},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			for _, path := range c.folders {
				if err := os.MkdirAll(filepath.Join(root, path), 0o700); err != nil {
					t.Fatal(err)
				}
			}
			for from, to := range c.links {
				if err := os.Symlink(filepath.Join(root, to), filepath.Join(root, from)); err != nil {
					t.Fatal(err)
				}
			}
			if c.owned != "" {
				if err := os.Lchown(filepath.Join(root, c.owned), other, other); err != nil {
					t.Fatal(err)
				}
			}
			unlock, err := store.Lock(filepath.Join(root, "data"))
			if err == nil {
				unlock()
			}
			if c.refused == "" {
				if err != nil {
					t.Fatal(err)
				}
				return
			}
			for _, want := range []string{filepath.Join(root, c.refused) + " ", "65534", "chown", "--data-dir"} {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("the lock says %v, which lacks %q", err, want)
				}
			}
			if _, err := os.Lstat(filepath.Join(root, "data", "lock")); err == nil {
				t.Error("the refused directory has a lock")
			}
		})
	}
}

// TestCommandsOfAnotherUser shows what a user is told who may not enter the data directory.
func TestCommandsOfAnotherUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root may act as another user")
	}
	root := t.TempDir()
	if err := os.Chmod(filepath.Dir(root), 0o755); err != nil { // of all TempDirs of the test
		t.Fatal(err)
	}
	asOther(t, func() {
		if _, err := os.Stat(root); err != nil {
			t.Skipf("other users do not come to the folder of temporary files: %v", err)
		}
	})
	for owner, want := range map[int]string{
		0: "run this command as root: ", 65533: "as root or as the user with uid 65533",
	} {
		dir := filepath.Join(root, strconv.Itoa(owner))
		if err := errors.Join(os.Mkdir(dir, 0o700), os.Chown(dir, owner, owner)); err != nil {
			t.Fatal(err)
		}
		asOther(t, func() {
			err := store.Save(t.Context(), dir, filepath.Join(dir, "snapshot.db"))
			if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), dir) {
				t.Errorf("a snapshot says %v, want %q", err, want)
			}
			if _, err := store.Lock(dir + "-new"); err == nil || !strings.Contains(err.Error(), "as root, or choose another") {
				t.Errorf("a new data directory: %v", err)
			}
			_, _, err = store.Defragment(t.Context(), dir)
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("a defragmentation says %v, want %q", err, want)
			}
		})
	}
}

// asOther calls a function whose thread has the rights of another user.
func asOther(t *testing.T, call func()) {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.Setfsuid(65534); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Setfsuid(0) }()
	call()
}

func TestLockMakesTheDirectory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "data")
	unlock, err := store.Lock(dir)
	if err != nil {
		t.Fatal(err)
	}
	unlock()
	if got := mode(t, dir); got != 0o700 {
		t.Errorf("the mode is %v", got)
	}
}
