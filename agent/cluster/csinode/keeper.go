package csinode

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berthd/berth/agent/cluster/kube"
	"github.com/berthd/berth/agent/volumes/csi"
	"github.com/berthd/berth/internal/notify"
	"github.com/berthd/berth/internal/retry"
)

// backoff is how long to wait after a write that failed.
var backoff = retry.Backoff{First: 200 * time.Millisecond, Most: 10 * time.Second}

// Deps are the dependencies of a keeper.
type Deps struct {
	Nodes   *kube.Client[v1.Node, *v1.Node]
	Objects *kube.Client[storagev1.CSINode, *storagev1.CSINode]
	// Node returns the Node object as it was last received, nil if there is none.
	Node func() *v1.Node
	// Drivers returns the registered drivers, and the names of those that are not registered any
	// more.
	Drivers func() (here []csi.Driver, gone []string)
	// Changed notifies that a driver was registered or removed. nil if nobody else notifies.
	Changed notify.Signal
	Logger  *slog.Logger
}

// Keeper keeps a node's CSINode current. Make it with [New].
type Keeper struct {
	deps Deps

	mu  sync.Mutex
	uid types.UID // of the Node that was last received
}

// New returns a keeper; it does nothing until Run.
func New(deps Deps) *Keeper {
	if deps.Changed == nil {
		deps.Changed = notify.New()
	}
	return &Keeper{deps: deps}
}

// Known takes the current Node object. A Node with another UID has nothing of what was written to
// the old one.
func (k *Keeper) Known(n *v1.Node) {
	k.mu.Lock()
	news := k.uid != n.UID
	k.uid = n.UID
	k.mu.Unlock()
	if news {
		k.deps.Changed.Notify()
	}
}

// Run writes after each change of the drivers or the Node, until ctx ends.
func (k *Keeper) Run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-k.deps.Changed:
		}
		for failures := 0; ; failures++ {
			err := k.sync(ctx)
			if err == nil || ctx.Err() != nil {
				break
			}
			if failures == 1 { // a single failure may be another's write at the same moment
				k.deps.Logger.Warn("the cluster does not know yet which CSI drivers this node has; it is tried again",
					"err", err)
			}
			if !retry.Sleep(ctx, backoff.Jittered(failures+1)) {
				return nil
			}
		}
	}
}

// sync brings the objects up to date. Without a Node it does nothing: [Keeper.Known] notifies of
// the next one.
func (k *Keeper) sync(ctx context.Context) error {
	node := k.deps.Node()
	here, gone := k.deps.Drivers()
	if node == nil || len(here)+len(gone) == 0 {
		return nil
	}
	patch, err := NodePatch(node, here, gone)
	if err != nil {
		return err
	}
	if patch != nil {
		if _, err := k.deps.Nodes.Patch(ctx, "", node.Name, patch); err != nil {
			return err
		}
	}
	for {
		again, err := k.write(ctx, node, here, gone)
		if err != nil || !again {
			return err
		}
	}
}

// write writes the CSINode once, and reports whether it must be written again.
func (k *Keeper) write(ctx context.Context, node *v1.Node, here []csi.Driver, gone []string) (again bool, err error) {
	have, err := k.deps.Objects.Get(ctx, "", node.Name)
	if err != nil && !apierrors.IsNotFound(err) {
		return false, err
	}
	want, changed, again := Want(have, node, here, gone)
	switch {
	case !changed:
		return false, nil
	case have == nil:
		_, err = k.deps.Objects.Create(ctx, want)
	default:
		_, err = k.deps.Objects.Update(ctx, want)
	}
	if err != nil {
		return false, fmt.Errorf("tell the cluster of CSI drivers: %w", err)
	}
	k.deps.Logger.Info("the cluster knows this node's CSI drivers", "node", node.Name,
		"drivers", len(want.Spec.Drivers))
	return again, nil
}
