package pod

import (
	"context"
	"path/filepath"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berthd/berth/agent/node/allocation"
	"github.com/berthd/berth/agent/node/logs"
	"github.com/berthd/berth/agent/pod/generate"
	"github.com/berthd/berth/agent/pod/plan"
	"github.com/berthd/berth/agent/telemetry/events"
	"github.com/berthd/berth/cri"
)

// nodeView is the node as the starter sees it.
type nodeView struct{ *Deps }

// Generate returns the facts about the node that package generate needs.
func (n nodeView) Generate(pod *v1.Pod) generate.Node { return n.generate(pod) }

// HostIPs returns the node's addresses, the primary one first.
func (n nodeView) HostIPs() []string { return n.Node.HostIPs() }

// Allocatable returns the resources that pods can have of the node.
func (n nodeView) Allocatable() v1.ResourceList { return n.Node.Allocatable() }

// HostsFile returns the content of the node's hosts file; nil if the file cannot be read.
func (n nodeView) HostsFile() []byte { return n.Node.HostsFile() }

// Objects returns the pods' ConfigMaps and Secrets.
func (n nodeView) Objects() generate.Objects { return n.Deps.Objects }

// Services returns the Services of a pod's environment.
func (n nodeView) Services(pod *v1.Pod) ([]*v1.Service, error) { return n.Deps.Objects.Services(pod) }

// Resources returns a container's cgroup settings.
func (n nodeView) Resources(pod *v1.Pod, c *v1.Container) *runtimeapi.LinuxContainerResources {
	return n.Runtime.Cgroups.ContainerResources(pod, c)
}

// Allocated returns what a container gets of the node's devices and CPUs at its start.
func (n nodeView) Allocated(ctx context.Context, pod *v1.Pod, c *v1.Container) (allocation.Given, error) {
	return n.Node.Allocation.Container(ctx, pod, c)
}

// generate returns the facts about the node and about the pod's runtime handler that the
// translation of a pod needs. An unknown handler has no abilities.
func (d *Deps) generate(pod *v1.Pod) generate.Node {
	handler, err := d.Objects.Handler(pod)
	out := d.Node.Generate(handler)
	if err != nil {
		out.Features.RecursiveReadOnly = false
	}
	return out
}

// nodeOnce records each kind of event about the node once. Else an event that every pod causes
// would be counted up with each pod. Each count costs a request to the API server, and says nothing
// new.
type nodeOnce struct {
	*events.Recorder
	recorded sync.Map // the reasons
}

// Node records an event about the node, unless an event with that reason was recorded before.
func (o *nodeOnce) Node(kind, reason, message string) {
	if _, again := o.recorded.LoadOrStore(reason, true); !again {
		o.Recorder.Node(kind, reason, message)
	}
}

func containerHash(c *v1.Container) string { return cri.ContainerHash(c) }

// LogTracker learns which containers have logs; *logs.Manager rotates these logs.
type LogTracker interface {
	Track(pod cri.PodID, containers []logs.Container)
	Forget(uid types.UID)
}

// trackLogs gives the tracker the containers of a pod, and their running instances.
func trackLogs(tracker LogTracker, root string, pod *v1.Pod, observed *plan.Observed) {
	dir := cri.PodLogDir(root, cri.IDOf(pod))
	byName := map[string]logs.Container{}
	for _, name := range containerNames(pod) {
		byName[name] = logs.Container{Name: name}
	}
	for _, c := range observed.Containers {
		known := byName[c.Name()]
		known.Name = c.Name()
		ours := filepath.Dir(c.LogPath) == filepath.Join(dir, c.Name())
		if c.Running() && known.ID == "" && ours { // the newest instance comes first
			known.ID, known.LogPath = c.Id, c.LogPath
		}
		byName[c.Name()] = known
	}
	list := make([]logs.Container, 0, len(byName))
	for _, c := range byName {
		list = append(list, c)
	}
	tracker.Track(cri.IDOf(pod), list)
}

// containerNames returns the names of all containers that a pod's spec has.
func containerNames(pod *v1.Pod) (names []string) {
	for i := range pod.Spec.InitContainers {
		names = append(names, pod.Spec.InitContainers[i].Name)
	}
	for i := range pod.Spec.Containers {
		names = append(names, pod.Spec.Containers[i].Name)
	}
	for i := range pod.Spec.EphemeralContainers {
		names = append(names, pod.Spec.EphemeralContainers[i].Name)
	}
	return names
}
