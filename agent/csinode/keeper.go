package csinode

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berthd/berth/agent/cluster"
	"github.com/berthd/berth/agent/tasks"
	"github.com/berthd/berth/agent/volumes/csi"
)

// retryFirst and retryMost bound the wait after a failure, twice as long after each.
const (
	retryFirst = 200 * time.Millisecond
	retryMost  = 10 * time.Second
)

// Deps are what a keeper needs.
type Deps struct {
	Nodes   *cluster.Client[v1.Node, *v1.Node]
	Objects *cluster.Client[storagev1.CSINode, *storagev1.CSINode]
	// Node returns the Node object as it was last heard of, nil where there is none.
	Node func() *v1.Node
	// Drivers returns the registered drivers, and the names of those that are not registered any more.
	Drivers func() (here []csi.Driver, gone []string)
	Logger  *slog.Logger
}

// Keeper keeps a node's CSINode true. Make it with [New].
type Keeper struct {
	deps Deps
	bell chan struct{}

	mu  sync.Mutex
	uid types.UID // of the Node that was last heard of
}

// New returns a keeper; it does nothing until Run.
func New(deps Deps) *Keeper { return &Keeper{deps: deps, bell: make(chan struct{}, 1)} }

// Changed has the drivers looked at.
func (k *Keeper) Changed() {
	select {
	case k.bell <- struct{}{}:
	default:
	}
}

// Known takes notice of the Node object: what a new one of an old name had is gone.
func (k *Keeper) Known(n *v1.Node) {
	k.mu.Lock()
	news := k.uid != n.UID
	k.uid = n.UID
	k.mu.Unlock()
	if news {
		k.Changed()
	}
}

// Run writes what there is to be written, whenever a driver comes or goes, until ctx ends.
func (k *Keeper) Run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-k.bell:
		}
		for failures := 0; ; failures++ {
			err := k.turn(ctx)
			if err == nil || ctx.Err() != nil {
				break
			}
			if failures == 1 { // another's write at the same time is none
				k.deps.Logger.Warn("the cluster does not know yet which CSI drivers this node has; it is tried again", "err", err)
			}
			wait := retryMost
			if failures < 6 {
				wait = min(wait, retryFirst<<failures)
			}
			if !tasks.Sleep(ctx, wait-rand.N(wait/5)) {
				return nil
			}
		}
	}
}

// turn brings the objects up to date. Without a Node there is nothing to do: the next one rings.
func (k *Keeper) turn(ctx context.Context) error {
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

// write writes the CSINode once, and says whether it has to be written again.
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
	k.deps.Logger.Info("the cluster knows this node's CSI drivers", "node", node.Name, "drivers", len(want.Spec.Drivers))
	return again, nil
}
