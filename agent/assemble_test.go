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
	for name, c := range map[string]struct {
		config, swap string
		fails, warns bool
	}{
		"no swap, set":  {"failSwapOn: true", "", false, false},
		"swap, set":     {"failSwapOn: true", "/dev/sda2", true, false},
		"swap, default": {"", "/dev/sda2", false, true},
		"swap, off":     {"failSwapOn: false", "/dev/sda2", false, false},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "config.yaml")
			text := "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n" + c.config + "\n"
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			cfg, _, err := configs.Load(configs.Options{File: file})
			if err != nil {
				t.Fatal(err)
			}
			var log bytes.Buffer
			err = checkSwap(cfg, func() (string, error) { return c.swap, nil }, slog.New(slog.NewTextHandler(&log, nil)))
			if (err != nil) != c.fails || strings.Contains(log.String(), "/dev/sda2") != c.warns {
				t.Errorf("error %v, log %q", err, log.String())
			}
		})
	}
}
