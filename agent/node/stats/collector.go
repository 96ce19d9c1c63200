package stats

import (
	"context"
	"io/fs"
	"log/slog"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/berthd/berth/cgroups"
	"github.com/berthd/berth/internal/retry"
	"github.com/berthd/berth/internal/silent"
)

// Config describes the node.
type Config struct {
	// Node is the node's name. RootDir and PodLogsDir are the agent's directories.
	Node, RootDir, PodLogsDir string
	// Proc is the directory of the proc file system; empty means /proc.
	Proc string
}

// Cgroups reads the usage of cgroups; *cgroups.Manager does.
type Cgroups interface {
	PodUsage(pod *v1.Pod) (cgroups.Usage, error)
	ContainerUsage(pod *v1.Pod, containerID string) (u cgroups.Usage, path string, err error)
	Usage(path string) (cgroups.Usage, error)
	Details(path string) (cgroups.Details, error)
	Processes(path string) []int
	Process(path string) (pid int, ok bool)
	Layout() cgroups.Layout
}

// Runtime is the part of the container runtime that the collector calls, for the whole summary
// only.
type Runtime interface {
	ListContainerStats(ctx context.Context,
		filter *runtimeapi.ContainerStatsFilter) ([]*runtimeapi.ContainerStats, error)
	ImageFsInfo(ctx context.Context) (*runtimeapi.ImageFsInfoResponse, error)
}

// Deps are what a Collector works with.
type Deps struct {
	// Cgroups returns nil until the node's cgroups are set up.
	Cgroups func() Cgroups
	Runtime Runtime
	// Pods returns the node's pods with their statuses. The collector does not modify them.
	Pods func() []*v1.Pod
	// Claimed returns the names of the pod's volumes that are claims, by the names of their
	// PersistentVolumes. Nil means that no volume is a claim.
	Claimed func(pod *v1.Pod) map[string]string
	// Driver asks a CSI driver how full a pod's volume is. The volume is named by its
	// PersistentVolume, or by its own name. If Driver or its result is nil, the stats are not
	// known.
	Driver func(ctx context.Context, pod types.UID, volume string, block bool) (*statsapi.FsStats, error)
	// Looks bounds the looks at volumes whose servers may not answer; nil does not.
	Looks  *silent.Looks
	Logger *slog.Logger
}

// Collector reads usage. Make it with [New].
type Collector struct {
	cfg  Config
	deps Deps

	// mu is held by the reading under way, never while a measurement is waited for.
	mu    sync.Mutex
	rates rates
	// budget limits what the counts of directories and open files take of the machine.
	budget *budget
	// sizes are the sizes of directories, spaces the file systems of volumes, and answers the stats
	// that drivers returned.
	sizes   measurer[dirKey, size]
	spaces  measurer[dirKey, space]
	answers measurer[driverKey, *statsapi.FsStats]
	// disks are where the runtime has images and layers; layers are the containers' layers, of a pod
	// or, without a pod, of all; files are what containers have open.
	disks  measurer[struct{}, disks]
	layers measurer[types.UID, map[string]layer]
	files  measurer[containerKey, openFiles]
}

// New returns a collector that has read nothing yet.
func New(cfg Config, deps Deps) *Collector {
	if cfg.Proc == "" {
		cfg.Proc = "/proc"
	}
	return &Collector{cfg: cfg, deps: deps, rates: rates{}, budget: newBudget()}
}

// cgroups returns the reader of cgroups.
func (c *Collector) cgroups() Cgroups {
	if cg := c.deps.Cgroups(); cg != nil {
		return cg
	}
	return noCgroups{}
}

// noCgroups takes its place until the cgroups are set up.
type noCgroups struct{}

func (noCgroups) PodUsage(*v1.Pod) (cgroups.Usage, error) { return cgroups.Usage{}, fs.ErrNotExist }
func (noCgroups) Usage(string) (cgroups.Usage, error)     { return cgroups.Usage{}, fs.ErrNotExist }
func (noCgroups) Details(string) (cgroups.Details, error) { return cgroups.Details{}, fs.ErrNotExist }
func (noCgroups) Processes(string) []int                  { return nil }
func (noCgroups) Process(string) (pid int, ok bool)       { return 0, false }
func (noCgroups) Layout() cgroups.Layout                  { return cgroups.Layout{Driver: cgroups.Cgroupfs} }

func (noCgroups) ContainerUsage(*v1.Pod, string) (u cgroups.Usage, path string, err error) {
	return u, "", fs.ErrNotExist
}

// firstRate is the time between the two readings of a cgroup without a rate. A rate of cpu use
// needs two readings, and the first caller wants a rate, too.
const firstRate = 200 * time.Millisecond

// reading is everything that was read at one time.
type reading struct {
	at   time.Time
	node nodeReading
	pods []podReading
}

// podReading is a pod's usage. path is empty if pods have no cgroups.
type podReading struct {
	pod        *v1.Pod
	path       string
	at         time.Time
	usage      cgroups.Usage
	nanoCores  *uint64
	containers []containerReading
	network    []link
}

// containerReading is a running container's usage.
type containerReading struct {
	name, id, image string
	path            string
	started         time.Time
	at              time.Time
	usage           cgroups.Usage
	nanoCores       *uint64
}

// read reads the node and every pod that has a cgroup, with rates. If something has no rate yet,
// read waits for [firstRate] and reads again. Only with network, it reads the pods' interfaces.
func (c *Collector) read(ctx context.Context, network bool) reading {
	c.mu.Lock()
	defer c.mu.Unlock()
	pods := c.deps.Pods()
	r := c.readPods(pods, network)
	complete := c.rates.complete(keysOf(r))
	c.finish(&r)
	c.keep(pods)
	if complete || !retry.Sleep(ctx, firstRate) {
		return r
	}
	r = c.readPods(pods, network)
	c.finish(&r)
	return r
}

// readOnce reads the node and every pod that has a cgroup, without rates.
func (c *Collector) readOnce(network bool) reading {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.readPods(c.deps.Pods(), network)
}

func (c *Collector) readPods(pods []*v1.Pod, network bool) reading {
	r := reading{at: time.Now()}
	r.node = c.readNode()
	for _, pod := range pods {
		p, ok := c.readPod(pod)
		if !ok {
			continue
		}
		if network {
			p.network = c.podLinks(&p)
		}
		r.pods = append(r.pods, p)
	}
	return r
}

// readPod reads a pod's cgroup and those of its running containers. A node without cgroupsPerQOS
// has no cgroups of pods: the pod uses what its containers use. readPod returns false if there is
// no cgroup, because the pod has not started or has ended.
func (c *Collector) readPod(pod *v1.Pod) (podReading, bool) {
	p := podReading{pod: pod, at: time.Now()}
	usage, err := c.cgroups().PodUsage(pod)
	if err == nil {
		p.usage, p.path = usage, c.cgroups().Layout().PodPath(pod.UID, cgroups.QOSClass(pod))
	}
	for _, r := range runningReadings(pod) {
		if r.usage, r.path, err = c.cgroups().ContainerUsage(pod, r.id); err != nil {
			continue // the container has just ended
		}
		if p.containers = append(p.containers, r); p.path == "" {
			p.usage = p.usage.Plus(r.usage)
		}
	}
	return p, p.path != "" || len(p.containers) > 0
}

// runningReadings returns the running containers of a pod, whose cgroups are not read yet.
func runningReadings(pod *v1.Pod) []containerReading {
	var out []containerReading
	for _, s := range runningContainers(&pod.Status) {
		_, id, _ := strings.Cut(s.ContainerID, "://")
		out = append(out, containerReading{
			name:    s.Name,
			id:      id,
			image:   s.Image,
			started: s.State.Running.StartedAt.Time,
			at:      time.Now(),
		})
	}
	return out
}

// podLinks returns the interfaces of a pod; none for a pod on the host's network.
func (c *Collector) podLinks(p *podReading) []link {
	if p.pod.Spec.HostNetwork {
		return nil
	}
	path := p.path
	if len(p.containers) > 0 {
		path = p.containers[0].path
	}
	pid, ok := c.cgroups().Process(path)
	if !ok {
		return nil
	}
	return c.links(pid)
}

// runningContainers returns the statuses of the running containers of all kinds.
func runningContainers(s *v1.PodStatus) []v1.ContainerStatus {
	var out []v1.ContainerStatus
	for _, list := range [][]v1.ContainerStatus{
		s.InitContainerStatuses, s.ContainerStatuses, s.EphemeralContainerStatuses,
	} {
		for _, status := range list {
			if status.State.Running != nil && status.ContainerID != "" {
				out = append(out, status)
			}
		}
	}
	return out
}

// finish computes rates from this reading and earlier ones. It removes the readings of pods and
// containers that are gone.
func (c *Collector) finish(r *reading) {
	keys := keysOf(*r)
	c.rates.keep(keys)
	r.node.nanoCores = c.rates.of(nodeKey, r.node.at, r.node.cpu)
	r.node.podsNanoCores = c.rates.of(podsKey, r.node.at, r.node.pods.CPU)
	r.node.agentNanoCores = c.rates.of(agentKey, r.node.at, r.node.agent.cpu)
	for i := range r.pods {
		p := &r.pods[i]
		p.nanoCores = c.rates.of(string(p.pod.UID), p.at, p.usage.CPU)
		for j := range p.containers {
			k := &p.containers[j]
			k.nanoCores = c.rates.of(k.id, k.at, k.usage.CPU)
		}
	}
}

// keep forgets the measurements of all pods but the node's.
func (c *Collector) keep(list []*v1.Pod) {
	pods := make(map[types.UID]bool, len(list))
	for _, pod := range list {
		pods[pod.UID] = true
	}
	c.budget.keep(pods)
	c.sizes.keep(func(k dirKey) bool { return pods[k.pod] })
	c.spaces.keep(func(k dirKey) bool { return pods[k.pod] })
	c.answers.keep(func(k driverKey) bool { return pods[k.pod] })
	c.layers.keep(func(pod types.UID) bool { return pod == "" || pods[pod] })
}

// keysOf returns the keys of all rates of a reading.
func keysOf(r reading) map[string]bool {
	keys := map[string]bool{nodeKey: true, podsKey: true, agentKey: true}
	for i := range r.pods {
		keys[string(r.pods[i].pod.UID)] = true
		for _, k := range r.pods[i].containers {
			keys[k.id] = true
		}
	}
	return keys
}
