package atomicfile

import (
	"os"
	"path/filepath"
	"testing"
)

func TestWrite(t *testing.T) {
	for _, keep := range []Keep{OverCrash, OverPowerLoss} {
		dir := t.TempDir()
		path := filepath.Join(dir, "f")
		// What a write that was cut off has left is no obstacle, and its mode does not count.
		if err := os.WriteFile(path+Unfinished, []byte("half of a longer text"), 0o644); err != nil {
			t.Fatal(err)
		}
		for _, content := range []string{"first", "", "second"} {
			if err := Write(path, []byte(content), 0o600, keep); err != nil {
				t.Fatal(err)
			}
			if got, err := os.ReadFile(path); err != nil || string(got) != content {
				t.Errorf("%q, %v; want %q", got, err, content)
			}
		}
		info, err := os.Stat(path)
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("mode %v, %v", info.Mode(), err)
		}
		entries, err := os.ReadDir(dir)
		if err != nil || len(entries) != 1 {
			t.Errorf("left beside it: %v, %v", entries, err)
		}
	}
}

func TestWriteIn(t *testing.T) {
	top := t.TempDir()
	dir := filepath.Join(top, "root")
	if err := os.MkdirAll(filepath.Join(dir, "below"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("..", filepath.Join(dir, "out")); err != nil {
		t.Fatal(err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	for _, keep := range []Keep{OverCrash, OverPowerLoss} {
		for _, name := range []string{"f", "below/f"} {
			for _, content := range []string{"first", "second"} {
				if err := WriteIn(root, name, []byte(content), 0o600, keep); err != nil {
					t.Fatal(err)
				}
				if got, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(got) != content {
					t.Errorf("%q, %v; want %q", got, err, content)
				}
			}
		}
		if err := WriteIn(root, "out/f", nil, 0o600, keep); err == nil {
			t.Error("a link led out of the root")
		}
	}
	for _, name := range []string{"f", "f" + Unfinished, "root/f" + Unfinished, "root/below/f" + Unfinished} {
		if _, err := os.Lstat(filepath.Join(top, name)); err == nil {
			t.Errorf("%s was left", name)
		}
	}
}

func TestAFailedWriteLeavesTheOldContent(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	if err := os.MkdirAll(filepath.Join(path, "in the way"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := Write(path, []byte("x"), 0o600, OverPowerLoss); err == nil {
		t.Error("a directory was replaced by a file")
	}
	if _, err := os.Stat(path + Unfinished); !os.IsNotExist(err) {
		t.Errorf("the unfinished file is there: %v", err)
	}
	if err := Write(filepath.Join(dir, "missing", "f"), nil, 0o600, OverCrash); !os.IsNotExist(err) {
		t.Errorf("into a directory that is not there: %v", err)
	}
}

func TestRemove(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	for _, name := range []string{path, path + Unfinished} {
		if err := os.WriteFile(name, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if err := Remove(path, OverPowerLoss); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{path, path + Unfinished} {
		if _, err := os.Stat(name); !os.IsNotExist(err) {
			t.Errorf("%s is there: %v", name, err)
		}
	}
	if err := Remove(filepath.Join(t.TempDir(), "missing", "f"), OverPowerLoss); err != nil {
		t.Error(err)
	}
}
