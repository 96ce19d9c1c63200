//go:build integration

package integration

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/containerd/v2/client"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berthd/berth/cri/remote"
	"github.com/berthd/berth/test/env"
	"github.com/berthd/berth/test/images"
)

// criNamespace is the containerd namespace of the service under test.
const criNamespace = "berth-cri-serve"

// A pod runs by "berth cri serve", and outlives it. A second service on the same socket or the same
// directory is refused, and one that was killed leaves nothing in the way of the next.
func TestCRIServe(t *testing.T) {
	t.Parallel()
	e := env.Containerd(t, env.Options{})
	importInto(t, e, criNamespace)
	binary, err := env.Binary(t.Context(), e.Checkout)
	if err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(e.Dir, "cri.sock")
	command := func(socket string) []string {
		return []string{
			binary, "cri", "serve", "--listen", "unix://" + socket, "--containerd", e.Endpoint, "--namespace", criNamespace,
			"--cni-conf-dir", e.CNIConfDir, "--cni-bin-dir", strings.Join(e.CNIBinDirs, ","), "--pause-image", images.Pause,
			"--root-dir", filepath.Join(e.Dir, "cri-root"), "--state-dir", filepath.Join(e.Dir, "cri-state"),
		}
	}
	service := e.NewProgram("cri-serve", command(socket)...)
	start := func() *remote.Runtime {
		t.Helper()
		if err := service.Start(); err != nil {
			t.Fatal(err)
		}
		rt, err := remote.Dial(t.Context(), remote.Config{Endpoint: "unix://" + socket})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = rt.Close() })
		env.Eventually(t, "the service to answer", func() error {
			_, err := rt.Version(t.Context())
			return err
		})
		return rt
	}
	rt := start()
	if info, err := os.Stat(socket); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the socket is %v, %v", info, err)
	}
	for name, other := range map[string]string{"socket": socket, "directory": filepath.Join(e.Dir, "other.sock")} {
		second := e.NewProgram("second-"+name, command(other)...)
		if err := second.Start(); err != nil {
			t.Fatal(err)
		}
		env.Eventually(t, "the second service to end", func() error {
			text, err := os.ReadFile(second.Log)
			if err == nil && !strings.Contains(string(text), "another process") {
				err = os.ErrNotExist
			}
			return err
		})
	}
	config := &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{Name: "web", Namespace: "default", Uid: "u1"}, Hostname: "web",
		Linux: &runtimeapi.LinuxPodSandboxConfig{CgroupParent: e.CgroupRoot},
	}
	sandbox, err := rt.RunPodSandbox(t.Context(), config, "")
	if err != nil {
		t.Fatal(err)
	}
	id, err := rt.CreateContainer(t.Context(), sandbox, &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: "main"}, Image: &runtimeapi.ImageSpec{Image: images.Busybox},
		Command: []string{"sleep", "100000"},
	}, config)
	if err == nil {
		err = rt.StartContainer(t.Context(), id)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, end := range []func(){service.Kill9, func() {
		if err := service.Stop(); err != nil {
			t.Error(err)
		}
	}} {
		end()
		rt = start()
		status, err := rt.ContainerStatus(t.Context(), id)
		if err != nil || status.State != runtimeapi.ContainerState_CONTAINER_RUNNING {
			t.Errorf("after a restart the container is %v, %v", status, err)
		}
	}
	if err := rt.RemovePodSandbox(t.Context(), sandbox); err != nil {
		t.Error(err)
	}
	if err := service.Stop(); err != nil {
		t.Error(err)
	}
}

// importInto imports the sample images into a containerd namespace.
func importInto(t *testing.T, e *env.Env, namespace string) {
	t.Helper()
	c, err := client.New(strings.TrimPrefix(e.Endpoint, "unix://"), client.WithDefaultNamespace(namespace))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	for _, name := range []string{images.Pause, images.Busybox} {
		f, err := os.Open(archiveOf(t, e, name))
		if err != nil {
			t.Fatal(err)
		}
		_, err = c.Import(t.Context(), f)
		_ = f.Close()
		if err != nil {
			t.Fatal(err)
		}
	}
}
