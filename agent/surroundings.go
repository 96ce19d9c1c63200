package agent

import (
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berthd/berth/agent/events"
	"github.com/berthd/berth/agent/generate"
	"github.com/berthd/berth/agent/volumes"
	"github.com/berthd/berth/configs"
	"github.com/berthd/berth/cri"
)

// nodeView is the node as the starter sees it.
type nodeView struct{ a *Agent }

// Generate returns what package generate must know of the node.
func (n nodeView) Generate(pod *v1.Pod) generate.Node { return n.a.generate(pod) }

// HostIPs returns the node's addresses, the primary one first.
func (n nodeView) HostIPs() []string { return n.a.node.HostIPs() }

// Allocatable returns what pods can have of the node.
func (n nodeView) Allocatable() v1.ResourceList { return n.a.node.Allocatable() }

// HostsFile returns the content of the node's hosts file, nil where it cannot be read.
func (n nodeView) HostsFile() []byte { return n.a.node.HostsFile() }

// Objects returns the pods' ConfigMaps and Secrets.
func (n nodeView) Objects() generate.Objects { return n.a.podObjects }

// Services returns the Services of a pod's environment.
func (n nodeView) Services(pod *v1.Pod) ([]*v1.Service, error) { return n.a.podObjects.services(pod) }

// Resources returns a container's cgroup settings.
func (n nodeView) Resources(pod *v1.Pod, c *v1.Container) *runtimeapi.LinuxContainerResources {
	return n.a.deps.Cgroups.ContainerResources(pod, c)
}

// fieldValue resolves a fieldRef for downward API volumes.
func fieldValue(pod *v1.Pod, ref *v1.ObjectFieldSelector, dyn volumes.Dynamic) (string, error) {
	return generate.FieldValue(pod, ref, generate.Addresses{HostIPs: dyn.HostIPs, PodIPs: dyn.PodIPs})
}

// resourceValue resolves a resourceFieldRef for downward API volumes.
func (a *Agent) resourceValue(pod *v1.Pod, ref *v1.ResourceFieldSelector) (string, error) {
	return generate.ResourceValue(pod, nil, ref, a.node.Allocatable())
}

// exec runs a command in a container for a probe or a hook.
func (a *Agent) exec(ctx context.Context, id string, cmd []string, timeout time.Duration) (exitCode int, output []byte, err error) {
	resp, err := a.deps.Runtime.ExecSync(ctx, id, cmd, timeout)
	if err != nil {
		return 0, nil, withoutExecID(err)
	}
	return int(resp.ExitCode), append(resp.Stdout, resp.Stderr...), nil
}

// alive returns nil where the runtime answers.
func (a *Agent) alive(ctx context.Context) error {
	_, err := a.deps.Runtime.Version(ctx)
	return err
}

// nodeOnce records each kind of event about the node once, where what every pod meets would have it counted up with each: that takes a request of the API server, and
// tells nothing new.
type nodeOnce struct {
	*events.Recorder
	told sync.Map // the reasons
}

// Node records an event about the node, unless there was one with that reason.
func (o *nodeOnce) Node(kind, reason, message string) {
	if _, again := o.told.LoadOrStore(reason, true); !again {
		o.Recorder.Node(kind, reason, message)
	}
}

func containerHash(c *v1.Container) string { return cri.ContainerHash(c) }

// makeDirs makes the directories that the agent keeps things in.
func makeDirs(cfg *configs.Config) error {
	for dir, mode := range map[string]os.FileMode{
		cfg.RootDir:                0o750,
		cfg.RootDir + "/pods":      0o750,
		cfg.Kubelet.PodLogsDir:     0o755,
		cfg.Berth.ContainerLogsDir: 0o755,
	} {
		if err := os.MkdirAll(dir, mode); err != nil {
			return fmt.Errorf("making the agent's directories: %w", err)
		}
	}
	return nil
}
