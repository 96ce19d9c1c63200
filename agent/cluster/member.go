package cluster

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berthd/berth/agent/cluster/certs"
	"github.com/berthd/berth/agent/cluster/csinode"
	"github.com/berthd/berth/agent/cluster/eventwriter"
	"github.com/berthd/berth/agent/cluster/kube"
	"github.com/berthd/berth/agent/cluster/mirror"
	"github.com/berthd/berth/agent/cluster/noderegistry"
	"github.com/berthd/berth/agent/cluster/podsource"
	"github.com/berthd/berth/agent/node"
	"github.com/berthd/berth/agent/node/podcidr"
	"github.com/berthd/berth/agent/node/runtimestate"
	"github.com/berthd/berth/agent/pod/worker"
	"github.com/berthd/berth/agent/source"
	"github.com/berthd/berth/agent/telemetry/events"
	"github.com/berthd/berth/agent/volumes"
	"github.com/berthd/berth/agent/volumes/csi"
	"github.com/berthd/berth/configs"
	"github.com/berthd/berth/cri"
	"github.com/berthd/berth/internal/lifecycle"
	"github.com/berthd/berth/internal/notify"
	"github.com/berthd/berth/internal/pods"
	"github.com/berthd/berth/internal/retry"
	"github.com/berthd/berth/status"
)

// Side is a node's side of a cluster: [*Member], or [Alone].
type Side interface {
	// Joined reports whether the node belongs to a cluster.
	Joined() bool
	// Lease says how the node stands in its cluster.
	Lease() Lease
	// Sources returns the cluster's sources of pods.
	Sources() []source.Source
	// Mirrored returns the status that the API server has of a static pod; nil if it is not known.
	Mirrored(pod *v1.Pod) *v1.PodStatus
	// First returns the loops that everything else needs. Loops returns the loops that start before
	// the sources of pods.
	First() []lifecycle.Loop
	Loops() []lifecycle.Loop
	// Reported waits until the API server has heard of every status, but not for long. Flush writes
	// the last statuses, after the workers have derived their last one.
	Reported(ctx context.Context)
	Flush()
	// Reviewer returns the connection by which the node asks the API server what callers of the
	// node may do; nil if nobody can be asked.
	Reviewer() *kube.Conn
	// Serving returns the node's serving certificate, which the cluster signs; nil if there is
	// none.
	Serving() certs.Serving
}

// Lease says how a node stands in its cluster. It is zero for a node without a cluster.
type Lease struct {
	// Server is the URL of the API server.
	Server string
	// Renewed is when the API server last accepted the node's Lease; zero if it never did. Over says
	// that the Lease has run out since then.
	Renewed time.Time
	Over    bool
}

// Signals say which part must look again.
type Signals struct {
	// Node: a fact about the node has changed. Static: static pods came or went. Drivers: storage
	// drivers came or went.
	Node, Static, Drivers notify.Signal
}

// Deps are what a member works with.
type Deps struct {
	Config  *configs.Config
	Node    *node.Node
	Runtime cri.Runtime
	State   *runtimestate.State
	// Objects receives the Node object that the API server has of this node.
	Objects Objects
	Status  *status.Store
	Workers *worker.Pool
	Desired Desired
	Gate    Gate
	Volumes *volumes.Manager
	Drivers *csi.Drivers
	PodCIDR *podcidr.Keeper
	// Pressures returns the node's conditions about what it lacks.
	Pressures func() []v1.NodeConditionType
	Events    *events.Recorder
	// Written, if set, is called after each status that the API server has accepted, with the time
	// since it did not have the pod's status.
	Written func(pod *v1.Pod, behind time.Duration)
	// Starting returns a channel that is closed once no pod waits to start: the writer of events
	// waits for that.
	Starting func() <-chan struct{}
	Signals  Signals
	Logger   *slog.Logger
}

// Desired says which sources have said what they want; *desired.State implements it.
type Desired interface {
	ReadAPI() bool
	StaticReady() bool
}

// Gate says whether pods may run on the node; *drain.Gate implements it.
type Gate interface {
	Open() bool
	ShuttingDown() bool
}

// Join returns the node's side of the cluster at the other end of a connection; conn is nil on a
// node without a cluster.
func Join(conn *Connection, deps Deps) (Side, error) {
	if conn == nil {
		return Alone{}, nil
	}
	m := &Member{conn: conn, deps: deps}
	clients, err := clientsOf(conn.Conn)
	if err != nil {
		return nil, err
	}
	m.registry = m.newRegistry(clients)
	deps.Node.SetReread(m.registry.Reread)
	m.csinode = csinode.New(csinode.Deps{
		Nodes: clients.nodes, Objects: clients.csiNodes, Node: m.registry.Node, Drivers: deps.Drivers.List,
		Changed: deps.Signals.Drivers, Logger: deps.Logger,
	})
	m.writer = status.NewWriter(deps.Status, status.WriterDeps{
		API:      podAPI{clients.pods},
		LocalUID: m.shownBy,
		Written:  deps.Written,
		Logger:   deps.Logger,
	})
	m.mirrors = mirror.New(mirror.Deps{
		API:     clients.pods,
		Static:  m.staticPods,
		Node:    m.registry.Node,
		Changed: deps.Signals.Static,
		Logger:  deps.Logger,
	})
	written := kube.Handler[*v1.Pod]{Replace: m.writer.Replace, Set: m.writer.Set, Remove: m.writer.Remove}
	shown := kube.Handler[*v1.Pod]{Replace: m.mirrors.Replace, Set: m.mirrors.Set, Remove: m.mirrors.Remove}
	m.source = podsource.New(deps.Node.Name, podsource.Deps{
		Pods: clients.pods, Logger: deps.Logger, Wait: m.registry.Read(), Seen: []kube.Handler[*v1.Pod]{written, shown},
	})
	return m, nil
}

// Member is the [Side] of a node that belongs to a cluster.
type Member struct {
	conn *Connection
	deps Deps

	registry *noderegistry.Registry
	csinode  *csinode.Keeper
	writer   *status.Writer
	mirrors  *mirror.Manager
	source   source.Source
	// attached is the last list of attached volumes from the Node object.
	attached atomic.Pointer[string]
}

// Joined is true.
func (m *Member) Joined() bool { return true }

// Lease returns the API server and the state of the node's Lease.
func (m *Member) Lease() Lease {
	at, over := m.registry.Leased()
	return Lease{Server: m.conn.Conn.Host(), Renewed: at, Over: over}
}

// Sources is the source of the pods that the cluster binds to this node.
func (m *Member) Sources() []source.Source { return []source.Source{m.source} }

// First returns the loops that keep the certificates, and the loop that writes events. Without
// certificates nothing reaches the API server, and the events of the agent's end must be written,
// too.
func (m *Member) First() []lifecycle.Loop {
	return append(m.conn.Rotators.loops(), lifecycle.Loop{Name: "events", Run: m.writeEvents})
}

// Loops returns the loops that keep the cluster's knowledge of this node, and the node's knowledge
// of the cluster. The order is the order of need.
func (m *Member) Loops() []lifecycle.Loop {
	// as soon as a source has said what the API server has
	list := []lifecycle.Loop{{Name: "status", Run: m.writer.Run}}
	list = append(list, m.deps.Objects.Loops()...) // that the restored pods use
	return append(list,
		// what the cluster knows of storage drivers
		lifecycle.Loop{Name: "csinode", Run: m.csinode.Run},
		// its Node object, before pods are bound to it
		lifecycle.Loop{Name: "node", Run: m.registry.Run},
		lifecycle.Loop{Name: "mirrors", Run: m.mirrors.Run}, // of static pods
	)
}

// clients are the kinds of objects that a member reads and writes.
type clients struct {
	pods     *kube.Client[v1.Pod, *v1.Pod]
	nodes    *kube.Client[v1.Node, *v1.Node]
	csiNodes *kube.Client[storagev1.CSINode, *storagev1.CSINode]
	// heartbeats and leases do not wait behind other requests.
	heartbeats *kube.Client[v1.Node, *v1.Node]
	leases     *kube.Client[coordinationv1.Lease, *coordinationv1.Lease]
}

func clientsOf(conn *kube.Conn) (c clients, err error) {
	if c.pods, err = kube.Pods(conn); err != nil {
		return c, err
	}
	if c.nodes, err = kube.Nodes(conn); err != nil {
		return c, err
	}
	if c.csiNodes, err = kube.CSINodes(conn); err != nil {
		return c, err
	}
	if c.heartbeats, err = kube.Nodes(conn.Unbounded()); err != nil {
		return c, err
	}
	c.leases, err = kube.Leases(conn.Unbounded())
	return c, err
}

// podAPI is the API server as the status writer asks it.
type podAPI struct {
	pods *kube.Client[v1.Pod, *v1.Pod]
}

// PatchStatus applies a strategic merge patch to a pod's status and returns the pod.
func (p podAPI) PatchStatus(ctx context.Context, namespace, name string, patch []byte) (*v1.Pod, error) {
	return p.pods.Patch(ctx, namespace, name, patch, "status")
}

// ConfirmDeletion deletes the pod with that UID at once; a pod that is gone already is no error.
func (p podAPI) ConfirmDeletion(ctx context.Context, namespace, name string, uid types.UID) error {
	opts := metav1.NewDeleteOptions(0)
	opts.Preconditions = metav1.NewUIDPreconditions(string(uid))
	if err := p.pods.Delete(ctx, namespace, name, *opts); err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	return nil
}

// reportTime is how long the end of the agent waits for the API server to hear of the pods' ends.
const reportTime = 2 * time.Second

// Reported waits until the API server has heard of every status. If the API server does not answer,
// Reported gives up after reportTime.
func (m *Member) Reported(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, reportTime)
	defer cancel()
	for (!m.writer.UpToDate() || !m.comparable()) && retry.Sleep(ctx, 20*time.Millisecond) {
	}
}

// comparable reports whether the API server has said which statuses it has of its own pods, so that
// the writer knows what to write.
func (m *Member) comparable() bool {
	if m.deps.Desired.ReadAPI() {
		return true
	}
	for _, e := range m.deps.Workers.List() {
		if pods.FromAPI(e.Pod) {
			return false
		}
	}
	return true
}

// Flush writes the last statuses.
func (m *Member) Flush() {
	ctx, cancel := context.WithTimeout(context.Background(), reportTime)
	defer cancel()
	m.writer.Flush(ctx)
}

// writeEvents writes the node's events to the API server. Events have a bound of their own, apart
// from all other requests.
func (m *Member) writeEvents(ctx context.Context) error {
	core, err := m.conn.Conn.Unbounded().Group(v1.SchemeGroupVersion)
	if err != nil {
		return err
	}
	k := &m.deps.Config.Kubelet
	cfg := eventwriter.Config{Burst: int(k.EventBurst)}
	if qps := k.EventRecordQPS; qps != nil {
		cfg.QPS = int(*qps)
	}
	w := eventwriter.New(cfg, eventwriter.Deps{Core: core, Busy: m.deps.Starting, Logger: m.deps.Logger})
	m.deps.Events.Listen(w.Take)
	return w.Run(ctx)
}

// Reviewer returns a connection without bounds. A caller waits for each review, so a review must
// not wait behind the agent's own requests.
func (m *Member) Reviewer() *kube.Conn { return m.conn.Conn.Unbounded() }

// Serving returns the certificate that the cluster signs; nil if the config does not ask for one.
func (m *Member) Serving() certs.Serving {
	if m.conn.Rotators.Serving == nil {
		return nil
	}
	return m.conn.Rotators.Serving
}

// knownNode takes notice of the Node object. A deleted Node object changes only what the objects
// know: it is going to be made again.
func (m *Member) knownNode(n *v1.Node) {
	m.deps.Objects.SetNode(n)
	if n == nil {
		return
	}
	m.deps.Node.SetObject(n)
	m.deps.Signals.Static.Notify()
	m.attachedChanged(n)
	m.csinode.Known(n)
	m.deps.PodCIDR.Known(n)
}

// attachedChanged wakes the pods that may wait for the attachment of a volume, if the Node object's
// lists of volumes have changed.
func (m *Member) attachedChanged(n *v1.Node) {
	now := fmt.Sprint(n.Status.VolumesInUse, n.Status.VolumesAttached)
	if before := m.attached.Swap(&now); before != nil && *before == now {
		return
	}
	for _, uid := range m.deps.Volumes.CSI().Users() {
		m.deps.Workers.Wake(uid)
	}
}
