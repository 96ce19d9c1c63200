//go:build integration

package native

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/stub"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berthd/berth/cni"
	"github.com/berthd/berth/cri/native/nri"
)

// adjuster is an NRI plugin. It gives each container a variable, a mount and a limit of processes.
type adjuster struct {
	dir   string
	known chan string // the names of containers that it is told of when it connects
	ended chan string
}

func (a *adjuster) Synchronize(
	_ context.Context, _ []*api.PodSandbox, containers []*api.Container,
) ([]*api.ContainerUpdate, error) {
	for _, c := range containers {
		a.known <- fmt.Sprint(c.GetName(), " ", c.GetEnv(), " ", c.GetLinux().GetResources().GetPids().GetLimit())
	}
	close(a.known)
	return nil, nil
}

func (a *adjuster) CreateContainer(
	_ context.Context, pod *api.PodSandbox, _ *api.Container,
) (*api.ContainerAdjustment, []*api.ContainerUpdate, error) {
	adjust := &api.ContainerAdjustment{}
	adjust.AddEnv("PLUGIN", pod.GetName())
	adjust.AddMount(&api.Mount{Destination: "/plugin", Type: "bind", Source: a.dir, Options: []string{"ro", "rbind"}})
	adjust.SetLinuxPidLimits(77)
	return adjust, nil, nil
}

func (a *adjuster) StopContainer(
	_ context.Context, _ *api.PodSandbox, c *api.Container,
) ([]*api.ContainerUpdate, error) {
	a.ended <- c.GetName()
	return nil, nil
}

// An NRI plugin changes a container, sees its end, and is told of it after a restart of berth.
func TestPlugins(t *testing.T) {
	t.Parallel()
	h := newHost(t, "native-plugins")
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "file"), []byte("of a plugin\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	home := t.TempDir()
	at := &nri.Config{
		Socket: filepath.Join(home, "s"), PluginDir: filepath.Join(home, "plugins"), ConfigDir: filepath.Join(home, "conf"),
	}
	open := func() *Runtime { return h.runtime(t, func(c *Config, _ *cni.Config) { c.NRI = at }) }
	connect := func() *adjuster {
		a := &adjuster{dir: dir, known: make(chan string, 10), ended: make(chan string, 10)}
		s, err := stub.New(a, stub.WithPluginName("test"), stub.WithPluginIdx("10"), stub.WithSocketPath(at.Socket),
			stub.WithOnClose(func() {}))
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.Stop)
		return a
	}
	r := open()
	a := connect()
	for name := range a.known {
		t.Errorf("there is a container %s", name)
	}
	p := h.newPod(t, r, "web", "", nil)
	limits := `cat /sys/fs/cgroup/pids.max /sys/fs/cgroup/pids/pids.max 2>/dev/null; true`
	if got := p.says(p.container("short", "echo $PLUGIN; cat /plugin/file; touch /plugin/x 2>/dev/null; "+limits)); got !=
		"web\nof a plugin\n77\n" {
		t.Errorf("the container says %q", got)
	}
	if name := <-a.ended; name != "short" {
		t.Errorf("%s has ended", name)
	}
	id := p.start(p.container("long", "sleep 1000"))
	if err := r.UpdateContainerResources(t.Context(), id, &runtimeapi.ContainerResources{
		Linux: &runtimeapi.LinuxContainerResources{CpuShares: 100},
	}); err != nil {
		t.Error(err)
	}
	shares := `cat /sys/fs/cgroup/cpu.weight /sys/fs/cgroup/cpu/cpu.shares 2>/dev/null; `
	said, err := r.ExecSync(t.Context(), id, []string{"sh", "-c", shares + limits}, time.Minute)
	if out := string(said.GetStdout()); err != nil || !strings.HasSuffix(out, "\n77\n") ||
		strings.HasPrefix(out, "1024\n") {
		t.Errorf("the updated container says %q, %v", out, err)
	}
	r.Close()
	p.runtime = open()
	a = connect()
	known := ""
	for name := range a.known {
		known += name + "\n"
	}
	if !strings.HasPrefix(known, "long ") || !strings.Contains(known, "PLUGIN=web") || !strings.HasSuffix(known, " 77\n") {
		t.Errorf("after the restart it knows %q", known)
	}
	p.remove()
	if name := <-a.ended; name != "long" {
		t.Errorf("%s has ended", name)
	}
}
