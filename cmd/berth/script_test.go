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

// TestScripts runs command lines against a fake agent behind the real server at $BERTH_SOCKET. The
// agent at $ENDING is the same, but its watches report changes and end. There is no agent at
// $NOWHERE. $MANIFESTS is the agent's manifest directory, which does not exist at first, and
// $AGENT_ROOT is its root directory. The commands are those of $BERTH_BIN if it is set: to start
// the test's own program for each of them takes a minute and more with the race detector. The
// server stays under it.
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
			stopEnding, err := serveEnding(dir)
			if err != nil {
				return err
			}
			env.Defer(func() {
				stopEnding()
				if err := stop(); err != nil {
					t.Errorf("the server: %v", err)
				}
				os.RemoveAll(dir)
			})
			if bin := os.Getenv("BERTH_BIN"); bin != "" {
				env.Setenv("PATH", filepath.Dir(bin)+string(filepath.ListSeparator)+env.Getenv("PATH"))
			}
			env.Setenv("BERTH_SOCKET", filepath.Join(dir, "s"))
			env.Setenv("AGENT_ROOT", dir)
			env.Setenv("ENDING", filepath.Join(dir, "e"))
			env.Setenv("MANIFESTS", filepath.Join(dir, "manifests"))
			env.Setenv("NOWHERE", filepath.Join(dir, "nobody"))
			return nil
		},
	})
}
