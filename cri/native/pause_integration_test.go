//go:build integration

package native

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berthd/berth/cni"
	"github.com/berthd/berth/cri/internal/shims"
	"github.com/berthd/berth/internal/thread"
)

// pidMode returns a change of a sandbox's PID namespace.
func pidMode(mode runtimeapi.NamespaceMode) func(*runtimeapi.PodSandboxConfig) {
	return func(c *runtimeapi.PodSandboxConfig) { c.Linux.SecurityContext.NamespaceOptions.Pid = mode }
}

// processes returns a container that shares PIDs in a way, and prints who is the first process.
func (p *pod) processes(mode runtimeapi.NamespaceMode) *runtimeapi.ContainerConfig {
	config := p.container("main", "cat /proc/1/comm")
	config.Linux.SecurityContext.NamespaceOptions.Pid = mode
	return config
}

// A sandbox has a pause process if its containers share their processes, or if the node's config
// wants one. Where there may be none, such a sandbox is refused.
func TestPause(t *testing.T) {
	t.Parallel()
	h := newHost(t, "native-pause")
	for name, c := range map[string]struct {
		mode   PauseMode
		pid    runtimeapi.NamespaceMode
		first  string
		paused bool
	}{
		"auto":           {"", runtimeapi.NamespaceMode_CONTAINER, "cat\n", false},
		"auto, shared":   {PauseAuto, runtimeapi.NamespaceMode_POD, "pause\n", true},
		"always":         {PauseAlways, runtimeapi.NamespaceMode_CONTAINER, "cat\n", true},
		"always, shared": {PauseAlways, runtimeapi.NamespaceMode_POD, "pause\n", true},
		"never":          {PauseNever, runtimeapi.NamespaceMode_CONTAINER, "cat\n", false},
	} {
		t.Run(name, func(t *testing.T) {
			r := h.runtime(t, func(cfg *Config, _ *cni.Config) { cfg.Pause = c.mode })
			p := h.newPod(t, r, "pause", "", pidMode(c.pid))
			if got := p.says(p.processes(c.pid)); got != c.first {
				t.Errorf("the first process is %q, want %q", got, c.first)
			}
			if _, err := h.client.LoadContainer(t.Context(), p.id); errdefs.IsNotFound(err) == c.paused {
				t.Errorf("the pause process is %v", err)
			}
			if !c.paused {
				shares := p.processes(runtimeapi.NamespaceMode_POD)
				shares.Metadata.Name = "shares"
				_, err := r.CreateContainer(t.Context(), p.id, shares, p.config)
				if !errdefs.IsFailedPrecondition(err) || !strings.Contains(err.Error(), "PID namespace") {
					t.Errorf("a container that shares what is not there: %v", err)
				}
			}
			p.remove()
		})
	}
	r := h.runtime(t, func(cfg *Config, _ *cni.Config) { cfg.Pause = PauseNever })
	config := h.sandboxConfig("refused", t.TempDir())
	pidMode(runtimeapi.NamespaceMode_POD)(config)
	_, err := r.RunPodSandbox(t.Context(), config, "")
	if !errdefs.IsFailedPrecondition(err) || !strings.Contains(err.Error(), "share a PID namespace") {
		t.Errorf("got %v", err)
	}
	h.nothingLeft(t)
}

// Containers of a sandbox without a pause process have one network, host name and shared memory, or
// the node's. A stop gives everything back, also if all that is there is a record.
func TestWithoutPause(t *testing.T) {
	t.Parallel()
	h := newHost(t, "native-pauseless")
	r := h.runtime(t)
	p := h.newPod(t, r, "shared", "", nil)
	first := p.container("first", "touch /dev/shm/here; hostname; ip addr show lo | grep -c LOOPBACK,UP")
	if got := p.says(first); got != "pod-shared\n1\n" {
		t.Errorf("the first container said %q", got)
	}
	const listens = "test -e /dev/shm/here && nc -l -p 8080 -e echo hello"
	server := p.start(p.container("server", listens))
	if got := p.says(p.container("client", "until nc 127.0.0.1 8080 </dev/null; do sleep 0.05; done")); got != "hello\n" {
		t.Errorf("the client got %q", got)
	}
	p.output(server)
	if err := r.StopPodSandbox(t.Context(), p.id); err != nil {
		t.Error(err)
	}
	if status, err := r.PodSandboxStatus(t.Context(), p.id); err != nil ||
		status.State != runtimeapi.PodSandboxState_SANDBOX_NOTREADY {
		t.Errorf("the stopped sandbox is %v, %v", status, err)
	}
	if _, err := r.CreateContainer(t.Context(), p.id, p.container("late", "true"), p.config); err == nil {
		t.Error("a stopped sandbox got a container")
	}
	p.remove()
	node := h.newPod(t, r, "node", "", func(c *runtimeapi.PodSandboxConfig) {
		c.Hostname = ""
		c.Linux.SecurityContext.NamespaceOptions = &runtimeapi.NamespaceOption{
			Network: runtimeapi.NamespaceMode_NODE, Ipc: runtimeapi.NamespaceMode_NODE, Pid: runtimeapi.NamespaceMode_NODE,
		}
	})
	config := node.container("main", "for kind in net ipc uts; do readlink /proc/self/ns/$kind; done")
	config.Linux.SecurityContext.NamespaceOptions = node.config.Linux.SecurityContext.NamespaceOptions
	var own strings.Builder
	for _, kind := range []string{"net", "ipc", "uts"} {
		own.WriteString(namespaceOf(t, kind) + "\n")
	}
	if got := node.says(config); got != own.String() {
		t.Errorf("the container is in %q, and the node in %q", got, own.String())
	}
	node.remove()
}

// The machine is restarted, which takes the namespaces. The sandbox is not ready afterwards, and
// can be removed.
func TestNamespacesAreGone(t *testing.T) {
	t.Parallel()
	h := newHost(t, "native-gone")
	first := h.runtime(t)
	p := h.newPod(t, first, "gone", "", nil)
	first.Close()
	if err := unix.Unmount(first.netns(p.id), 0); err != nil {
		t.Fatal(err)
	}
	p.runtime = h.runtime(t)
	status, err := p.runtime.PodSandboxStatus(t.Context(), p.id)
	if err != nil || status.State != runtimeapi.PodSandboxState_SANDBOX_NOTREADY {
		t.Errorf("the sandbox is %v, %v", status, err)
	}
	p.remove()
}

// The shim of a pod is killed. Its container ends, and the sandbox can be removed before containerd
// has seen the end of the shim.
func TestShimIsGone(t *testing.T) {
	t.Parallel()
	h := newHost(t, "native-shim-gone")
	r := h.runtime(t, func(cfg *Config, _ *cni.Config) { cfg.Pause = PauseAlways })
	whose := shims.Containerd{Socket: r.cfg.Containerd, Namespace: r.cfg.Namespace}
	for i := range 10 {
		p := h.newPod(t, r, fmt.Sprintf("shim-gone-%d", i), "", nil)
		p.start(p.container("main", "exec sleep 1000"))
		found, err := shims.Of(t.Context(), whose, false)
		if err != nil || len(found) != 1 {
			t.Fatalf("the shims are %v, %v, want one", found, err)
		}
		if err := unix.Kill(found[0].PID, unix.SIGKILL); err != nil {
			t.Fatal(err)
		}
		p.remove()
	}
	h.nothingLeft(t)
}

// A sysctl of the node cannot be set by a pod.
func TestSysctlsOfTheNode(t *testing.T) {
	t.Parallel()
	h := newHost(t, "native-sysctls")
	r := h.runtime(t)
	for _, name := range []string{"kernel.pid_max", "vm.swappiness", "kernel.shm_next_id"} {
		config := h.sandboxConfig("sysctls", t.TempDir())
		config.Linux.Sysctls = map[string]string{name: "0"}
		if _, err := r.RunPodSandbox(t.Context(), config, ""); !errdefs.IsInvalidArgument(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
	h.nothingLeft(t)
}

// Whatever threads make namespaces, this process stays in its own.
func TestOnThread(t *testing.T) {
	before := namespaceOf(t, "uts")
	var all sync.WaitGroup
	for range 500 {
		all.Go(func() {
			if err := thread.Own(func() error { return unix.Unshare(unix.CLONE_NEWUTS) }); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if after := namespaceOf(t, "uts"); after != before {
		t.Errorf("the process is in %s, and was in %s", after, before)
	}
}

// namespaceOf returns a namespace of this process.
func namespaceOf(t *testing.T, kind string) string {
	t.Helper()
	name, err := os.Readlink("/proc/self/ns/" + kind)
	if err != nil {
		t.Fatal(err)
	}
	return name
}
