package cluster

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berthd/berth/agent/cluster/noderegistry"
	"github.com/berthd/berth/agent/node/runtimestate"
)

const (
	// runtimeCheck bounds the time of a question to the runtime about its state.
	runtimeCheck = 5 * time.Second
	// imagesFresh is how long the Node object's list of images counts as true.
	imagesFresh = time.Minute
	// namesPerImage is the greatest number of names of one image in a Node object, as in the
	// kubelet's.
	namesPerImage = 5
)

// newRegistry returns the registry that keeps the cluster's knowledge of this node.
func (m *Member) newRegistry(c clients) *noderegistry.Registry {
	d := &m.deps
	k := &d.Config.Kubelet
	cfg := noderegistry.Config{
		Name: d.Node.Name, Register: k.RegisterNode == nil || *k.RegisterNode, Labels: d.Config.NodeLabels,
		Taints: k.RegisterWithTaints, ProviderID: k.ProviderID, External: d.Config.CloudProvider == "external",
		Update: k.NodeStatusUpdateFrequency.Duration, Report: k.NodeStatusReportFrequency.Duration,
		LeaseDuration: time.Duration(k.NodeLeaseDurationSeconds) * time.Second,
	}
	for _, ip := range d.Config.NodeIPs {
		cfg.NodeIPs = append(cfg.NodeIPs, ip.String())
	}
	if away, err := d.Node.Absent(); err != nil || len(away) > 0 {
		d.Logger.Warn("--node-ip: no interface of this machine has the address; the Node has it all the same, and the "+
			"API server may not reach the node by it",
			"addresses", away, "err", err)
	}
	facts := &nodeFacts{deps: d, declared: d.Node.DeclaredFeatures()}
	return noderegistry.New(cfg, noderegistry.Deps{
		Nodes: c.heartbeats, Leases: c.leases, Facts: facts.now, Known: m.knownNode, Event: d.Events.Node,
		Registered: d.Node.Devices().Registered, Changed: d.Signals.Node, Logger: d.Logger,
	})
}

// nodeFacts gathers the facts about the node.
type nodeFacts struct {
	deps     *Deps
	declared []string

	mu     sync.Mutex
	images []v1.ContainerImage
	listed time.Time
}

// now returns the facts. It asks the runtime for the runtime's state.
func (n *nodeFacts) now(ctx context.Context) noderegistry.Facts {
	d := n.deps
	capacity, allocatable := d.Node.Published()
	f := noderegistry.Facts{
		Addresses: d.Node.HostIPs(), Capacity: capacity, Allocatable: allocatable, Fresh: d.Node.Devices().Fresh(),
		Info: d.Node.Info(d.State.Release()), Faults: n.faults(ctx), Images: n.list(ctx), Port: d.Config.Kubelet.Port,
		VolumesInUse: d.Volumes.CSI().InUse(), Declared: n.declared,
	}
	lacks := d.Pressures()
	f.MemoryPressure = slices.Contains(lacks, v1.NodeMemoryPressure)
	f.DiskPressure = slices.Contains(lacks, v1.NodeDiskPressure)
	f.PIDPressure = slices.Contains(lacks, v1.NodePIDPressure)
	if st := d.State.Status(); st != nil {
		f.Handlers = runtimeHandlers(st.GetRuntimeHandlers())
		groups := st.GetFeatures().GetSupplementalGroupsPolicy()
		f.Features = &v1.NodeFeatures{SupplementalGroupsPolicy: &groups}
	}
	return f
}

// faults says why the node is not ready, in the kubelet's words.
func (n *nodeFacts) faults(ctx context.Context) []string {
	d := n.deps
	var out []string
	ctx, cancel := context.WithTimeout(ctx, runtimeCheck)
	defer cancel()
	st, err := d.Runtime.Status(ctx, false)
	switch {
	case err != nil && d.State.Status() == nil:
		out = append(out, "container runtime status check may not have completed yet")
	case err != nil:
		out = append(out, "container runtime is down")
	default:
		out = append(out, runtimestate.FaultsOf(st)...)
	}
	switch {
	case d.Gate.ShuttingDown():
		out = append(out, "node is shutting down")
	case !d.Gate.Open():
		out = append(out, "node is drained by berth drain")
	}
	return out
}

// list returns the node's images, the largest first, at most a minute old.
func (n *nodeFacts) list(ctx context.Context) []v1.ContainerImage {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.listed.IsZero() && time.Since(n.listed) < imagesFresh {
		return n.images
	}
	ctx, cancel := context.WithTimeout(ctx, runtimeCheck)
	defer cancel()
	images, err := n.deps.Runtime.ListImages(ctx)
	if err != nil {
		return n.images // the images of the last list
	}
	most := 50
	if limit := n.deps.Config.Kubelet.NodeStatusMaxImages; limit != nil {
		most = int(*limit)
	}
	n.images, n.listed = nodeImages(images, most), time.Now()
	return n.images
}

// nodeImages returns images in the form of a Node object, the largest first. It returns at most
// that many; a value below 0 is no bound.
func nodeImages(images []*runtimeapi.Image, most int) []v1.ContainerImage {
	out := make([]v1.ContainerImage, 0, len(images))
	for _, i := range images {
		names := slices.Concat(i.RepoDigests, i.RepoTags)
		out = append(out, v1.ContainerImage{Names: names[:min(len(names), namesPerImage)], SizeBytes: int64(i.Size)})
	}
	slices.SortStableFunc(out, func(x, y v1.ContainerImage) int {
		return cmp.Or(cmp.Compare(y.SizeBytes, x.SizeBytes), slices.Compare(x.Names, y.Names))
	})
	if most >= 0 && len(out) > most {
		out = out[:most]
	}
	return out
}

// runtimeHandlers returns the runtime's handlers in the form of a Node object.
func runtimeHandlers(handlers []*runtimeapi.RuntimeHandler) []v1.NodeRuntimeHandler {
	var out []v1.NodeRuntimeHandler
	for _, h := range handlers {
		recursive, users := h.GetFeatures().GetRecursiveReadOnlyMounts(), h.GetFeatures().GetUserNamespaces()
		out = append(out,
			v1.NodeRuntimeHandler{
				Name:     h.Name,
				Features: &v1.NodeRuntimeHandlerFeatures{RecursiveReadOnlyMounts: &recursive, UserNamespaces: &users},
			})
	}
	slices.SortFunc(out, func(x, y v1.NodeRuntimeHandler) int { return cmp.Compare(x.Name, y.Name) })
	return out
}
