//go:build integration

package integration

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berthd/berth/test/env"
)

// cliCopies checks that a directory that is copied into a container and back is unchanged.
func cliCopies(t *testing.T, _ *env.Env, a *env.Agent) {
	dir := t.TempDir()
	big := strings.Repeat("0123456789abcdef", 1<<16)
	for name, text := range map[string]string{"a": "text", "sub/big": big} {
		path := filepath.Join(dir, "src", name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o640); err != nil {
			t.Fatal(err)
		}
	}
	for _, args := range [][]string{
		{filepath.Join(dir, "src"), "server:/tmp"}, {"server:/tmp/src", filepath.Join(dir, "back")},
	} {
		if out, errOut, code := a.CLI("cp", "-c", "shell", args[0], args[1]); code != 0 {
			t.Fatalf("cp %v: code %d, %s%s", args, code, out, errOut)
		}
	}
	got, err := os.ReadFile(filepath.Join(dir, "back/sub/big"))
	info, statErr := os.Stat(filepath.Join(dir, "back/a"))
	if err != nil || statErr != nil || string(got) != big || info.Mode() != 0o640 {
		t.Errorf("%d of %d bytes came back, %v, %v, %v", len(got), len(big), err, info, statErr)
	}
	if _, errOut, code := a.CLI("cp", "-c", "shell", "server:/nope", dir); code == 0 ||
		!strings.Contains(errOut, "nope") {
		t.Errorf("what is not there: code %d, %q", code, errOut)
	}
}
