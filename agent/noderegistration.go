package agent

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berthd/berth/agent/cluster"
	"github.com/berthd/berth/agent/noderegistry"
	"github.com/berthd/berth/client/api"
)

const (
	// runtimeCheck bounds the question how the runtime is.
	runtimeCheck = 5 * time.Second
	// imagesFresh is for how long the list of images that the Node object has is taken as true.
	imagesFresh = time.Minute
	// namesPerImage is how many names of one image a Node object has at most, as the kubelet's.
	namesPerImage = 5
)

// newRegistry returns what keeps the cluster's knowledge of this node. Heartbeats do not wait behind other requests.
func (a *Agent) newRegistry() (*noderegistry.Registry, error) {
	conn := a.deps.Conn.Unbounded()
	nodes, err := cluster.Nodes(conn)
	if err != nil {
		return nil, err
	}
	leases, err := cluster.Leases(conn)
	if err != nil {
		return nil, err
	}
	k := &a.cfg.Kubelet
	cfg := noderegistry.Config{
		Name: a.node.Name, Register: k.RegisterNode == nil || *k.RegisterNode, Labels: a.cfg.NodeLabels, Taints: k.RegisterWithTaints, ProviderID: k.ProviderID,
		External: a.cfg.CloudProvider == "external", Update: k.NodeStatusUpdateFrequency.Duration, Report: k.NodeStatusReportFrequency.Duration,
		LeaseDuration: time.Duration(k.NodeLeaseDurationSeconds) * time.Second,
	}
	for _, ip := range a.cfg.NodeIPs {
		cfg.NodeIPs = append(cfg.NodeIPs, ip.String())
	}
	if away, err := a.node.Absent(); err != nil || len(away) > 0 {
		a.log.Warn("--node-ip: no interface of this machine has the address; the Node has it all the same, and the API server may not reach the node by it", "addresses", away, "err", err)
	}
	facts := &nodeFacts{a: a, declared: a.node.DeclaredFeatures()}
	return noderegistry.New(cfg, noderegistry.Deps{
		Nodes: nodes, Leases: leases, Facts: facts.now, Known: a.knownNode, Event: a.events.Node, Logger: a.log,
	}), nil
}

// keepNode registers the node and keeps its status and Lease.
func (a *Agent) keepNode(ctx context.Context) error { return a.registry.Run(ctx) }

// nodeChanged has the Node object's status computed soon.
func (a *Agent) nodeChanged() {
	if a.registry != nil {
		a.registry.Changed()
	}
}

// knownNode takes notice of the Node object. A deleted one changes nothing here: it comes again.
func (a *Agent) knownNode(n *v1.Node) {
	if n != nil {
		a.node.SetLabels(n.Labels)
		a.staticChanged()
		a.attachedChanged(n)
		a.csinode.Known(n)
		a.podCIDR.known(n)
	}
}

// nodeFacts gathers what there is to say of the node.
type nodeFacts struct {
	a        *Agent
	declared []string

	mu     sync.Mutex
	images []v1.ContainerImage
	listed time.Time
}

// now returns the facts. The runtime is asked how it is.
func (n *nodeFacts) now(ctx context.Context) noderegistry.Facts {
	a := n.a
	version := "unknown://Unknown"
	if v := a.version.Load(); v != nil {
		version = v.RuntimeName + "://" + v.RuntimeVersion
	}
	f := noderegistry.Facts{
		Addresses: a.node.HostIPs(), Capacity: a.node.Capacity(), Allocatable: a.node.Allocatable(), Info: a.node.Info(version), Faults: n.faults(ctx),
		Images: n.list(ctx), Port: a.cfg.Kubelet.Port, VolumesInUse: a.volumes.CSI().InUse(),
		Declared: n.declared,
	}
	if st := a.runtimeStatus.Load(); st != nil {
		f.Handlers = runtimeHandlers(st.GetRuntimeHandlers())
		groups := st.GetFeatures().GetSupplementalGroupsPolicy()
		f.Features = &v1.NodeFeatures{SupplementalGroupsPolicy: &groups}
	}
	return f
}

// faults says why the node is not ready, in the kubelet's words.
func (n *nodeFacts) faults(ctx context.Context) []string {
	a := n.a
	var out []string
	ctx, cancel := context.WithTimeout(ctx, runtimeCheck)
	defer cancel()
	st, err := a.deps.Runtime.Status(ctx, false)
	switch {
	case err != nil && a.runtimeStatus.Load() == nil:
		out = append(out, "container runtime status check may not have completed yet")
	case err != nil:
		out = append(out, "container runtime is down")
	default:
		out = append(out, runtimeFaults(st.GetStatus().GetConditions())...)
	}
	switch state, _, _ := a.gate.now(); {
	case a.shutting.Load():
		out = append(out, "node is shutting down")
	case state != api.Open:
		out = append(out, "node is drained by berth drain")
	}
	return out
}

// runtimeFaults says of which of the CRI's two conditions the runtime says that it does not hold. What else it says of itself is for people.
func runtimeFaults(conditions []*runtimeapi.RuntimeCondition) []string {
	var out []string
	for _, kind := range [][2]string{{runtimeapi.RuntimeReady, "container runtime not ready: "}, {runtimeapi.NetworkReady, "container runtime network not ready: "}} {
		for _, c := range conditions {
			if c.Type == kind[0] && !c.Status {
				out = append(out, fmt.Sprintf("%s%s=false reason:%s message:%s", kind[1], c.Type, c.Reason, c.Message))
			}
		}
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
	images, err := n.a.deps.Runtime.ListImages(ctx)
	if err != nil {
		return n.images // those of before
	}
	most := 50
	if limit := n.a.cfg.Kubelet.NodeStatusMaxImages; limit != nil {
		most = int(*limit)
	}
	n.images, n.listed = nodeImages(images, most), time.Now()
	return n.images
}

// nodeImages returns images as a Node object has them, the largest first, at most so many; below 0 is no bound.
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

// runtimeHandlers returns the runtime's handlers as a Node object has them.
func runtimeHandlers(handlers []*runtimeapi.RuntimeHandler) []v1.NodeRuntimeHandler {
	var out []v1.NodeRuntimeHandler
	for _, h := range handlers {
		recursive, users := h.GetFeatures().GetRecursiveReadOnlyMounts(), h.GetFeatures().GetUserNamespaces()
		out = append(out, v1.NodeRuntimeHandler{Name: h.Name, Features: &v1.NodeRuntimeHandlerFeatures{RecursiveReadOnlyMounts: &recursive, UserNamespaces: &users}})
	}
	slices.SortFunc(out, func(x, y v1.NodeRuntimeHandler) int { return cmp.Compare(x.Name, y.Name) })
	return out
}
