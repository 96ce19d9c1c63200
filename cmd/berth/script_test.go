package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"berth": main})
}

// TestScripts plays command lines against an agent that is not real, behind the real server. $SOCKET is its socket; scripts that need no agent find none at
// the default.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(env *testscript.Env) error {
			dir, err := os.MkdirTemp("", "cli") //nolint:usetesting // t.TempDir may be too long for a socket
			if err != nil {
				return err
			}
			stop, err := serve(dir)
			if err != nil {
				return err
			}
			env.Defer(func() {
				if err := stop(); err != nil {
					t.Errorf("the server: %v", err)
				}
				os.RemoveAll(dir)
			})
			env.Setenv("BERTH_SOCKET", filepath.Join(dir, "s"))
			env.Setenv("NOWHERE", filepath.Join(dir, "nobody"))
			return nil
		},
	})
}
