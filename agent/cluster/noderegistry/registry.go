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

	"github.com/berthd/berth/agent/cluster/kube"
	"github.com/berthd/berth/internal/notify"
)

// unready is how often the status of a node that is not ready is computed. Pods wait for the node
// to be ready.
const unready = time.Second

// backoff is how long to wait after a failed registration or renewal.
var backoff = kube.Backoff{First: 100 * time.Millisecond, Most: 7 * time.Second}

// Deps are the dependencies of a registry.
type Deps struct {
	Nodes  *kube.Client[v1.Node, *v1.Node]
	Leases *kube.Client[coordinationv1.Lease, *coordinationv1.Lease]
	// Facts returns the node's current facts.
	Facts func(ctx context.Context) Facts
	// Known gets the Node object as the API server has it, nil if there is none.
	Known func(*v1.Node)
	// Registered is called when a machine whose facts are fresh has registered: from then on they
	// are not. It may be nil if they never are.
	Registered func()
	// Event records an event about the node.
	Event func(eventType, reason, message string)
	// Changed notifies that a fact changed, so that the status is computed soon. nil if nobody else
	// notifies.
	Changed notify.Signal
	Logger  *slog.Logger
}

// Registry keeps the cluster's objects about this node current. Make it with [New].
type Registry struct {
	cfg  Config
	deps Deps
	read chan struct{} // closed after the API server was first asked for the node
	made chan struct{} // closed once there is a Node

	// reporting is held while an answer of the API server is stored and reported, so that both have
	// the same order.
	reporting sync.Mutex

	mu   sync.Mutex
	node *v1.Node // as the API server said last; nil if there is none
	// heard is the revision of the follower's last news, including the Node's deletion; 0 after a
	// list without the Node.
	heard       uint64
	once, there sync.Once
	// reported is when the status was last written. introduced says that the conditions were
	// recorded as events. unschedulable is the last recorded state of the node's spec.
	reported                  time.Time
	introduced, unschedulable bool
	adjusted                  bool

	// renewNow and syncNow end the waits after failures: the API server was read again.
	renewNow, syncNow notify.Signal

	// leased is when the API server last accepted the Lease; mu guards it.
	leased time.Time

	// renewed is the time in the Lease that was last written. recalled says that the time in the
	// API server's Lease was read. Only renew uses both.
	renewed  time.Time
	recalled bool
}

// New returns a registry. It does nothing until [Registry.Run].
func New(cfg Config, deps Deps) *Registry {
	if deps.Changed == nil {
		deps.Changed = notify.New()
	}
	return &Registry{
		cfg: cfg, deps: deps, read: make(chan struct{}), made: make(chan struct{}),
		renewNow: notify.New(), syncNow: notify.New(),
	}
}

// Read is closed once the API server has been asked for the node and has answered.
func (r *Registry) Read() <-chan struct{} { return r.read }

// Node returns the node as the API server said last. nil if there is none, or it has not been read.
func (r *Registry) Node() *v1.Node {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.node
}

// Leased returns when the API server last accepted the node's Lease; zero if it never did. over
// says that the Lease has run out since then: the cluster takes the node for dead.
func (r *Registry) Leased() (at time.Time, over bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.leased, time.Since(r.leased) > r.cfg.LeaseDuration
}

// Run registers the node, and keeps its status and its Lease until ctx ends.
func (r *Registry) Run(ctx context.Context) error {
	var parts sync.WaitGroup
	defer parts.Wait()
	parts.Go(func() { r.follow(ctx) })
	if r.cfg.LeaseDuration > 0 {
		parts.Go(func() { r.renew(ctx) })
	}
	failures := 0
	for ctx.Err() == nil {
		wait, err := r.sync(ctx)
		wake := r.deps.Changed
		if err != nil && ctx.Err() == nil {
			if failures == 0 {
				r.deps.Logger.Warn("node not brought up to date in the API server; it is tried again",
					"node", r.cfg.Name, "err", err)
			}
			failures++
			wait, wake = backoff.Delay(failures, err), r.syncNow
		} else if failures > 0 {
			failures = 0
			r.deps.Logger.Info("node is up to date in the API server again", "node", r.cfg.Name)
		}
		sleep(ctx, wait, wake)
	}
	return nil
}

// sleep waits for d, or until a notification. There is none if wake is nil.
func sleep(ctx context.Context, d time.Duration, wake notify.Signal) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	case <-wake:
	}
}

// follow follows this node's Node object.
func (r *Registry) follow(ctx context.Context) {
	r.deps.Nodes.Follow(ctx, "", "metadata.name="+r.cfg.Name, kube.Handler[*v1.Node]{
		Replace: func(items []*v1.Node) {
			if len(items) == 0 {
				r.hear(nil, 0)
			} else {
				r.hear(items[0], revisionOf(items[0]))
				r.deps.Changed.Notify()
			}
			r.renewNow.Notify()
			r.syncNow.Notify()
		},
		Set:    func(n *v1.Node) { r.hear(n, revisionOf(n)) },
		Remove: func(n *v1.Node) { r.hear(nil, revisionOf(n)) },
		Logger: r.deps.Logger,
	})
}

// hear stores the follower's news: the node at a revision, nil if there is none.
func (r *Registry) hear(n *v1.Node, revision uint64) {
	r.reporting.Lock()
	defer r.reporting.Unlock()
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
		r.deps.Logger.Warn("the node was deleted from the API server", "node", r.cfg.Name,
			"registerNode", r.cfg.Register)
	}
	if n == nil || gone {
		r.deps.Changed.Notify()
	}
}

// revisionOf returns the revision of a Node, 0 if it is not a number.
func revisionOf(n *v1.Node) uint64 {
	revision, err := strconv.ParseUint(n.ResourceVersion, 10, 64)
	if err != nil {
		return 0
	}
	return revision
}

// sync does what is necessary now, and returns when to sync again.
func (r *Registry) sync(ctx context.Context) (time.Duration, error) {
	select {
	case <-r.read:
	default:
		return r.cfg.Update, nil // the follower notifies
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
	r.recordSchedulable(node)
	if err := r.report(ctx, node, f); err != nil {
		return next, err
	}
	r.settle(f)
	return next, nil
}

// settle says that a fresh machine has registered.
func (r *Registry) settle(f Facts) {
	if f.Fresh && r.cfg.Register {
		r.deps.Registered()
	}
}

// register makes the Node. If there is one already, the follower receives it.
func (r *Registry) register(ctx context.Context, f Facts) error {
	want := Initial(r.cfg, f, time.Now())
	node, err := r.deps.Nodes.Create(ctx, want)
	if apierrors.IsAlreadyExists(err) {
		if node, err = r.deps.Nodes.Get(ctx, "", r.cfg.Name); err == nil {
			r.know(node)
			r.deps.Changed.Notify()
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
	r.recordConditions(nil, want.Status.Conditions)
	r.settle(f)
	return nil
}

// know stores the Node that a request returned, unless the follower received something newer:
// another state, the deletion, or another Node.
func (r *Registry) know(node *v1.Node) {
	r.reporting.Lock()
	defer r.reporting.Unlock()
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

// adjust adds the node's own labels, annotations and identifier to an existing Node, once in an
// agent's life.
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
			r.deps.Event(v1.EventTypeWarning, "Rebooted",
				fmt.Sprintf("Node %s has been rebooted, boot id: %s", r.cfg.Name, now))
		}
	}
	r.mu.Lock()
	r.adjusted = true
	r.mu.Unlock()
	return nil
}

// report writes the status if it differs, or if it was not written for long.
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
		return nil // the follower receives the new state
	}
	if err != nil {
		return err
	}
	r.mu.Lock()
	r.reported = time.Now()
	r.mu.Unlock()
	r.know(after)
	r.recordConditions(node.Status.Conditions, want.Conditions)
	return nil
}

// recordConditions records events, with the reasons of kubelet 1.36, about conditions that differ
// from those in the API server. Once in an agent's life it records the node's pressures in any
// state. It records no event that a node is not ready if the node was never ready.
func (r *Registry) recordConditions(before, now []v1.NodeCondition) {
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

// recordSchedulable records an event when the node becomes schedulable or unschedulable.
func (r *Registry) recordSchedulable(node *v1.Node) {
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
