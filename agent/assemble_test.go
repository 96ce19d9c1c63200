package agent

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berthd/berth/configs"
)

// A host with swap is refused if the config asks for that, warned of by default, and expected with
// failSwapOn: false.
func TestCheckSwap(t *testing.T) {
	const heading = "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n"
	for name, c := range map[string]struct {
		config, swaps string
		fails, warns  bool
	}{
		"no swap, set":  {"failSwapOn: true", heading, false, false},
		"swap, set":     {"failSwapOn: true", heading + "/dev/sda2 partition 1 0 -2\n", true, false},
		"swap, default": {"", heading + "/dev/sda2 partition 1 0 -2\n", false, true},
		"swap, off":     {"failSwapOn: false", heading + "/dev/sda2 partition 1 0 -2\n", false, false},
		"no such file":  {"failSwapOn: true", "", false, false},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			file, swaps := filepath.Join(dir, "config.yaml"), filepath.Join(dir, "swaps")
			text := "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n" + c.config + "\n"
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			if c.swaps != "" {
				if err := os.WriteFile(swaps, []byte(c.swaps), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			cfg, _, err := configs.Load(configs.Options{File: file})
			if err != nil {
				t.Fatal(err)
			}
			var log bytes.Buffer
			err = checkSwap(cfg, swaps, slog.New(slog.NewTextHandler(&log, nil)))
			if (err != nil) != c.fails || strings.Contains(log.String(), "/dev/sda2") != c.warns {
				t.Errorf("error %v, log %q", err, log.String())
			}
		})
	}
}
