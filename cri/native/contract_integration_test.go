//go:build integration

package native

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/containerd/v2/client"

	"github.com/berthd/berth/cni"
	native "github.com/berthd/berth/cri/native/images"
	"github.com/berthd/berth/cri/suite"
	"github.com/berthd/berth/test/env"
	"github.com/berthd/berth/test/images"
)

// host is a machine on which native runtimes of one namespace come and go.
type host struct {
	*env.Env
	namespace string
	client    *client.Client
}

// newHost returns a host with the sample images.
func newHost(t *testing.T, namespace string) *host {
	t.Helper()
	return newHostOn(t, env.Containerd(t, env.Options{}), namespace)
}

// newHostOn returns a host on the containerd of an environment, with the sample images.
func newHostOn(t testing.TB, e *env.Env, namespace string) *host {
	t.Helper()
	c, err := client.New(strings.TrimPrefix(e.Endpoint, "unix://"), client.WithDefaultNamespace(namespace))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	archives, err := images.Build(t.Context(), e.Checkout)
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range archives {
		f, err := os.Open(a.Path)
		if err != nil {
			t.Fatal(err)
		}
		_, err = c.Import(t.Context(), f)
		_ = f.Close()
		if err != nil {
			t.Fatal(err)
		}
	}
	return &host{Env: e, namespace: namespace, client: c}
}

// runtime returns a runtime on the host, as after a start of berth. The end of the test closes it.
func (h *host) runtime(t testing.TB, change ...func(*Config, *cni.Config)) *Runtime {
	t.Helper()
	network := cni.Config{
		ConfDir: h.CNIConfDir, BinDirs: h.CNIBinDirs, StateDir: filepath.Join(h.Dir, "native", "cni"),
	}
	cfg := Config{
		Containerd: strings.TrimPrefix(h.Endpoint, "unix://"), Namespace: h.namespace, PauseImage: images.Pause,
		RootDir:  filepath.Join(h.Dir, "native", "root"),
		StateDir: filepath.Join(h.Dir, "native", "state"), Images: native.Config{RegistryDir: t.TempDir()},
		Handlers: map[string]Handler{"": {}, env.NewerHandler: {Binary: filepath.Join(h.BinDir(), "newer", "runc")}},
		Logger:   slog.New(slog.NewTextHandler(t.Output(), nil)),
	}
	for _, c := range change {
		c(&cfg, &network)
	}
	var err error
	if cfg.Network, err = cni.New(network); err != nil {
		t.Fatal(err)
	}
	r, err := New(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return r
}

func TestContract(t *testing.T) {
	t.Parallel()
	h := newHost(t, "native-contract")
	inModes(t, func(t *testing.T, mode func(*Config, *cni.Config)) {
		suite.Run(t, func(t *testing.T) suite.Target {
			return suite.Target{Runtime: h.runtime(t, mode), Image: images.Busybox, CgroupParent: h.CgroupRoot}
		})
		h.nothingLeft(t)
	})
}

// inModes runs a test without and with pause processes.
func inModes(t *testing.T, test func(t *testing.T, mode func(*Config, *cni.Config))) {
	for _, mode := range []PauseMode{PauseAuto, PauseAlways} {
		t.Run("pause "+string(mode), func(t *testing.T) {
			test(t, func(c *Config, _ *cni.Config) { c.Pause = mode })
		})
	}
}

// nothingLeft reports what is left on the host.
func (h *host) nothingLeft(t *testing.T) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	left, err := h.client.ContainerService().List(ctx)
	if err != nil || len(left) > 0 {
		t.Errorf("left in containerd: %v, %v", left, err)
	}
	for _, dir := range []string{
		"root/sandboxes", "root/containers", "root/volumes", "state/sandboxes", "state/containers", "state/netns",
		"state/volumes", "cni/attachments", "cni/results",
	} {
		entries, err := os.ReadDir(filepath.Join(h.Dir, "native", dir))
		if err != nil && !os.IsNotExist(err) || len(entries) > 0 {
			t.Errorf("left in %s: %v, %v", dir, entries, err)
		}
	}
	env.Eventually(t, "the keepers of pipes to end", func() error {
		open, err := filepath.Glob("/proc/[0-9]*/fd/0")
		for _, fd := range open {
			if path, _ := os.Readlink(fd); strings.HasPrefix(path, filepath.Join(h.Dir, "native")) {
				err = errors.Join(err, fmt.Errorf("%s is %s", fd, path))
			}
		}
		return err
	})
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, filepath.Join(h.Dir, "native")) {
			t.Errorf("left mounted: %s", line)
		}
	}
}
