package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/berthd/berth/agent/volumes"
	"github.com/berthd/berth/configs"
)

// TestRunHomeKeepsMounts checks that mounts in the run's directory are not deleted.
func TestRunHomeKeepsMounts(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can mount")
	}
	root := filepath.Join(t.TempDir(), "home")
	h := &runHome{
		root:      root,
		manifests: filepath.Join(root, "manifests"),
		logs:      filepath.Join(root, "logs"),
		links:     filepath.Join(root, "links"),
	}
	mounted := filepath.Join(h.logs, "pod", "mounted")
	for _, dir := range []string{h.manifests, h.links, mounted, filepath.Join(root, "berth", "x")} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.Mount("none", mounted, "tmpfs", 0, "size=64k"); err != nil {
		t.Fatal(err)
	}
	unmount := func() { _ = unix.Unmount(mounted, unix.MNT_DETACH) }
	t.Cleanup(unmount)
	precious := filepath.Join(mounted, "precious")
	if err := os.WriteFile(precious, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := h.remove(t.Context()); !errors.Is(err, volumes.ErrMounted) {
		t.Errorf("got %v", err)
	}
	if _, err := os.Stat(precious); err != nil {
		t.Errorf("what was mounted: %v", err)
	}
	unmount()
	if err := h.remove(t.Context()); err != nil {
		t.Errorf("after the mount is gone: %v", err)
	}
	if _, err := os.Stat(root); !os.IsNotExist(err) {
		t.Errorf("the directory is left: %v", err)
	}
}

// TestRunHomeIsItsOwn checks that a run takes nothing that the agent of the same config has.
func TestRunHomeIsItsOwn(t *testing.T) {
	cfg := &configs.Config{}
	cfg.Berth.CRISocket, cfg.Berth.Containerd.Namespace = "/run/berth/cri.sock", "agents"
	homeAt("/run/of/a/pod").set(cfg, podName{"default", "pod"})
	if cfg.Berth.CRISocket != "" || cfg.Berth.Containerd.Namespace != "" {
		t.Errorf("the run has the agent's CRI socket %q, and its namespace %q", cfg.Berth.CRISocket,
			cfg.Berth.Containerd.Namespace)
	}
}

func TestRunOfAnImage(t *testing.T) {
	cfg, _, err := configs.Load(configs.Options{})
	if err != nil {
		t.Fatal(err)
	}
	r := &runner{cfg: cfg}
	if _, _, err := r.read("nginx:1.27", nil); err == nil || !strings.Contains(err.Error(), "and no image") {
		t.Errorf("an image: %v", err)
	}
	if _, _, err := r.read(t.TempDir()+"/web.yaml", nil); err == nil || strings.Contains(err.Error(), "image") {
		t.Errorf("a file that is not there: %v", err)
	}
}
