package native

import (
	"os"
	"path/filepath"
	"testing"
)

func TestFeatures(t *testing.T) {
	for name, c := range map[string]struct {
		script     string
		rro, users bool
		fails      bool
	}{
		"all": {
			script: `echo '{"mountOptions":["ro","rro"],"linux":{"namespaces":["user"],"mountExtensions":{"idmap":{"enabled":true}}}}'`,
			rro:    true, users: true,
		},
		"old":           {script: `echo '{"mountOptions":["rro"],"linux":{"namespaces":["user"]}}'`, rro: true},
		"not compiled":  {script: `echo '{"linux":{"namespaces":["user"],"mountExtensions":{"idmap":{"enabled":false}}}}'`},
		"nothing":       {script: `echo '{}'`},
		"rubbish":       {script: `echo hello`, fails: true},
		"older command": {script: `echo 'No help topic' >&2; exit 3`, fails: true},
	} {
		path := filepath.Join(t.TempDir(), "runtime")
		if err := os.WriteFile(path+".new", []byte("#!/bin/sh\n"+c.script+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
		got, err := ask(t.Context(), path)
		if c.fails {
			if err == nil {
				t.Errorf("%s: got %v", name, got)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		kernel := hasMountSetattr()
		if got.RecursiveReadOnlyMounts != (c.rro && kernel) || got.UserNamespaces != (c.users && kernel) {
			t.Errorf("%s: got %v", name, got)
		}
	}
	if _, err := ask(t.Context(), "/no/such/runtime"); err == nil {
		t.Error("a runtime that is not there answered")
	}
}
