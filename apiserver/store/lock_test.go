package store_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

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
