package native

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/berthd/berth/cni"
)

// A verbose status has the network's configuration as it is now, and nothing if there is none.
func TestInfo(t *testing.T) {
	dir := t.TempDir()
	network, err := cni.New(cni.Config{ConfDir: dir, BinDirs: []string{dir}, StateDir: filepath.Join(dir, "state")})
	if err != nil {
		t.Fatal(err)
	}
	r := &Runtime{cfg: Config{Network: network}}
	for _, step := range []struct{ config, want string }{
		{"", ""},
		{
			`{"cniVersion": "1.0.0", "name": "a",` + "\n" + ` "plugins": [{"type": "bridge"}]}`,
			`{"cniVersion":"1.0.0","name":"a","plugins":[{"type":"bridge"}]}`,
		},
		{"{", ""},
	} {
		if step.config != "" {
			if err := os.WriteFile(filepath.Join(dir, "10-a.conflist"), []byte(step.config), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if got := r.info()[networkInfo]; got != step.want {
			t.Errorf("with the file %q the status has %q", step.config, got)
		}
	}
}
