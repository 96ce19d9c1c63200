package noderegistry

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/berthd/berth/agent/cluster"
)

// unready is how often the status of a node that is not ready is computed: pods wait for it.
const unready = time.Second

// retry is the back-off of the registration.
var retry = cluster.Backoff{First: 100 * time.Millisecond, Most: 7 * time.Second}

// Deps are what a registry needs.
type Deps struct {
	Nodes  *cluster.Client[v1.Node, *v1.Node]
	Leases *cluster.Client[coordinationv1.Lease, *coordinationv1.Lease]
	// Facts says what there is to say of the node now.
	Facts func(ctx context.Context) Facts
	// Known is told of the Node object as the API server has it, nil where it has none.
	Known func(*v1.Node)
	// Event tells of what happened to the node, as an event about it.
	Event  func(eventType, reason, message string)
	Logger *slog.Logger
}

// Registry keeps the cluster's knowledge of this node true. Make it with [New].
type Registry struct {
	cfg  Config
	deps Deps
	bell chan struct{}
	read chan struct{} // closed once the API server has been asked for the node
	made chan struct{} // closed once there is a Node

	// telling is held while what the API server says is noted and told of: in the same order.
	telling sync.Mutex

	mu   sync.Mutex
	node *v1.Node // as the API server said last; nil where it has none
	// heard is the revision of what the follower heard last, the node's end included; 0 where it heard that there is none.
	heard       uint64
	once, there sync.Once
	// reported is when the status was written last; introduced says that the conditions were told of by events, unschedulable what was told of the node's spec.
	reported                  time.Time
	introduced, unschedulable bool
	adjusted                  bool

	// renewed is the time in the Lease that was written last, and recalled says that it was read what it was before: the renewals' own.
	renewed  time.Time
	recalled bool
}

// New returns a registry; it does nothing until Run.
func New(cfg Config, deps Deps) *Registry {
	return &Registry{cfg: cfg, deps: deps, bell: make(chan struct{}, 1), read: make(chan struct{}), made: make(chan struct{})}
}

// Read is closed once the API server has been asked for the node and has answered.
func (r *Registry) Read() <-chan struct{} { return r.read }

// Changed has the status computed soon: a fact is another one now.
func (r *Registry) Changed() {
	select {
	case r.bell <- struct{}{}:
	default:
	}
}

// Node returns the node as the API server said last; nil where it has none, or has not been read.
func (r *Registry) Node() *v1.Node {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.node
}

// Run registers the node and keeps its status and its Lease until ctx ends.
func (r *Registry) Run(ctx context.Context) error {
	var parts sync.WaitGroup
	defer parts.Wait()
	parts.Go(func() { r.follow(ctx) })
	if r.cfg.LeaseDuration > 0 {
		parts.Go(func() { r.renew(ctx) })
	}
	failures := 0
	for ctx.Err() == nil {
		wait, err := r.turn(ctx)
		if err != nil && ctx.Err() == nil {
			if failures == 0 {
				r.deps.Logger.Warn("node not brought up to date in the API server; it is tried again", "node", r.cfg.Name, "err", err)
			}
			failures++
			wait = retry.Delay(failures, err)
		} else if failures > 0 {
			failures = 0
			r.deps.Logger.Info("node is up to date in the API server again", "node", r.cfg.Name)
		}
		r.sleep(ctx, wait, failures == 0)
	}
	return nil
}

// sleep waits, or less where something changed and it may be interrupted.
func (r *Registry) sleep(ctx context.Context, d time.Duration, interruptible bool) {
	t := time.NewTimer(d)
	defer t.Stop()
	bell := r.bell
	if !interruptible {
		bell = nil
	}
	select {
	case <-ctx.Done():
	case <-t.C:
	case <-bell:
	}
}

// follow keeps what the API server has of this node.
func (r *Registry) follow(ctx context.Context) {
	r.deps.Nodes.Follow(ctx, "", "metadata.name="+r.cfg.Name, cluster.Handler[*v1.Node]{
		Replace: func(items []*v1.Node) {
			if len(items) == 0 {
				r.hear(nil, 0)
			} else {
				r.hear(items[0], revisionOf(items[0]))
				r.Changed()
			}
		},
		Set:    func(n *v1.Node) { r.hear(n, revisionOf(n)) },
		Remove: func(n *v1.Node) { r.hear(nil, revisionOf(n)) },
		Logger: r.deps.Logger,
	})
}

// hear notes what the follower heard: the node as it is at a revision, nil where there is none.
func (r *Registry) hear(n *v1.Node, revision uint64) {
	r.telling.Lock()
	defer r.telling.Unlock()
	r.mu.Lock()
	gone := r.node != nil && n == nil
	r.node, r.heard = n, revision
	r.mu.Unlock()
	r.deps.Known(n)
	if n != nil {
		r.there.Do(func() { close(r.made) })
	}
	r.once.Do(func() { close(r.read) })
	if gone {
		r.deps.Logger.Warn("the node was deleted from the API server", "node", r.cfg.Name, "registerNode", r.cfg.Register)
	}
	if n == nil || gone {
		r.Changed()
	}
}

// revisionOf is the revision of a Node; 0 where it is no number.
func revisionOf(n *v1.Node) uint64 {
	revision, err := strconv.ParseUint(n.ResourceVersion, 10, 64)
	if err != nil {
		return 0
	}
	return revision
}

// turn does what there is to do now, and returns when to look again.
func (r *Registry) turn(ctx context.Context) (time.Duration, error) {
	select {
	case <-r.read:
	default:
		return r.cfg.Update, nil // the follower rings
	}
	f := r.deps.Facts(ctx)
	next := r.cfg.Update
	if len(f.Faults) > 0 {
		next = min(next, unready)
	}
	node := r.Node()
	if node == nil {
		if !r.cfg.Register {
			return next, nil
		}
		return next, r.register(ctx, f)
	}
	if err := r.adjust(ctx, node); err != nil {
		return next, err
	}
	r.tellSchedulable(node)
	return next, r.report(ctx, node, f)
}

// register makes the Node. One that is there already will be heard of by the follower.
func (r *Registry) register(ctx context.Context, f Facts) error {
	want := Initial(r.cfg, f, time.Now())
	node, err := r.deps.Nodes.Create(ctx, want)
	if apierrors.IsAlreadyExists(err) {
		if node, err = r.deps.Nodes.Get(ctx, "", r.cfg.Name); err == nil {
			r.know(node)
			r.Changed()
		}
		return err
	}
	if err != nil {
		return err
	}
	r.deps.Logger.Info("node registered", "node", r.cfg.Name)
	r.mu.Lock()
	r.reported, r.adjusted = time.Now(), true
	r.mu.Unlock()
	r.know(node)
	r.tell(nil, want.Status.Conditions)
	return nil
}

// know notes the Node that a request returned, unless something newer was heard meanwhile: another state of it, its end, or another Node.
func (r *Registry) know(node *v1.Node) {
	r.telling.Lock()
	defer r.telling.Unlock()
	r.mu.Lock()
	news := revisionOf(node) >= r.heard && (r.node == nil || r.node.UID == node.UID)
	if news {
		r.node = node
	}
	r.mu.Unlock()
	if !news {
		return
	}
	r.there.Do(func() { close(r.made) })
	r.deps.Known(node)
}

// adjust gives a Node that there was before what a node's own have, once in an agent's life.
func (r *Registry) adjust(ctx context.Context, node *v1.Node) error {
	r.mu.Lock()
	done := r.adjusted
	r.mu.Unlock()
	if done || !r.cfg.Register {
		return nil
	}
	if patch := Adjust(r.cfg, node); patch != nil {
		text, err := json.Marshal(patch)
		if err != nil {
			return fmt.Errorf("encoding the node's labels: %w", err)
		}
		after, err := r.deps.Nodes.Patch(ctx, "", r.cfg.Name, text)
		if err != nil {
			return err
		}
		r.know(after)
	}
	if boot := node.Status.NodeInfo.BootID; boot != "" {
		if now := r.deps.Facts(ctx).Info.BootID; now != "" && now != boot {
			r.deps.Event(v1.EventTypeWarning, "Rebooted", fmt.Sprintf("Node %s has been rebooted, boot id: %s", r.cfg.Name, now))
		}
	}
	r.mu.Lock()
	r.adjusted = true
	r.mu.Unlock()
	return nil
}

// report writes the status where it differs, or where it was not written for long.
func (r *Registry) report(ctx context.Context, node *v1.Node, f Facts) error {
	want := Status(r.cfg, f, node, time.Now())
	patch, changed, err := StatusPatch(&node.Status, &want)
	if err != nil {
		return err
	}
	r.mu.Lock()
	due := time.Since(r.reported) >= r.cfg.Report
	r.mu.Unlock()
	if !changed && !due {
		return nil
	}
	after, err := r.deps.Nodes.Patch(ctx, "", r.cfg.Name, patch, "status")
	if apierrors.IsNotFound(err) {
		return nil // the follower hears of it
	}
	if err != nil {
		return err
	}
	r.mu.Lock()
	r.reported = time.Now()
	r.mu.Unlock()
	r.know(after)
	r.tell(node.Status.Conditions, want.Conditions)
	return nil
}

// tell tells by events with kubelet 1.36's reasons of conditions that are not what the API server had of them, and once in an agent's life of the node's pressures,
// whatever they are. A node that was never ready is not told not to be.
func (r *Registry) tell(before, now []v1.NodeCondition) {
	reasons := map[v1.NodeConditionType][2]string{
		v1.NodeReady:          {"NodeReady", "NodeNotReady"},
		v1.NodeMemoryPressure: {"NodeHasInsufficientMemory", "NodeHasSufficientMemory"},
		v1.NodeDiskPressure:   {"NodeHasDiskPressure", "NodeHasNoDiskPressure"},
		v1.NodePIDPressure:    {"NodeHasInsufficientPID", "NodeHasSufficientPID"},
	}
	r.mu.Lock()
	introduced := r.introduced
	r.introduced = true
	r.mu.Unlock()
	for _, c := range now {
		var old v1.ConditionStatus
		for _, b := range before {
			if b.Type == c.Type {
				old = b.Status
			}
		}
		known := introduced || c.Type == v1.NodeReady
		if old == c.Status && known || old == "" && c.Type == v1.NodeReady && c.Status != v1.ConditionTrue {
			continue
		}
		reason := reasons[c.Type][0]
		if c.Status != v1.ConditionTrue {
			reason = reasons[c.Type][1]
		}
		r.event(reason)
	}
}

// tellSchedulable tells where the node may be given pods again, or may not any more.
func (r *Registry) tellSchedulable(node *v1.Node) {
	r.mu.Lock()
	same := r.unschedulable == node.Spec.Unschedulable
	r.unschedulable = node.Spec.Unschedulable
	r.mu.Unlock()
	switch {
	case same:
	case node.Spec.Unschedulable:
		r.event("NodeNotSchedulable")
	default:
		r.event("NodeSchedulable")
	}
}

func (r *Registry) event(reason string) {
	r.deps.Event(v1.EventTypeNormal, reason, fmt.Sprintf("Node %s status is now: %s", r.cfg.Name, reason))
}
