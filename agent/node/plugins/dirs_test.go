package plugins

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The directories are made and labelled. One that cannot be labelled is there all the same.
func TestMakeDirs(t *testing.T) {
	root := filepath.Join(t.TempDir(), "root")
	var log bytes.Buffer
	var labelled []string
	label := func(dir, label string) error {
		labelled = append(labelled, filepath.Base(dir)+" "+label)
		if filepath.Base(dir) == RegistryDir {
			return errors.New("operation not supported")
		}
		return nil
	}
	if err := makeDirs(root, label, slog.New(slog.NewTextHandler(&log, nil))); err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, name := range []string{"plugins", "plugins_registry", "device-plugins"} {
		want = append(want, name+" system_u:object_r:container_file_t:s0")
		if info, err := os.Stat(filepath.Join(root, name)); err != nil || info.Mode().Perm()&0o027 != 0 {
			t.Errorf("%s: %v, %v", name, info, err)
		}
	}
	if !slices.Equal(labelled, want) {
		t.Errorf("labelled %q", labelled)
	}
	if n := strings.Count(log.String(), "not labelled"); n != 1 {
		t.Errorf("%d failures are logged: %s", n, log.String())
	}
}

func TestMakeDirsInAFile(t *testing.T) {
	root := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(root, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := MakeDirs(root, slog.New(slog.DiscardHandler)); err == nil {
		t.Error("no error")
	}
}
