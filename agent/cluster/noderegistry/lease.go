package noderegistry

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/berthd/berth/internal/notify"
)

// renewals is how often a Lease is renewed within its duration. As in the kubelet, that is every 10
// s of 40 s.
const renewals = 4

// renew keeps the node's Lease until ctx ends. A request that the API server does not answer takes
// at most half of the Lease's duration.
func (r *Registry) renew(ctx context.Context) {
	every := r.cfg.LeaseDuration / renewals
	var lease *coordinationv1.Lease
	failures := 0
	t := time.NewTimer(every)
	defer t.Stop()
	// The Node owns the Lease. If there is no Node after one period, the Lease is made without an
	// owner.
	select {
	case <-ctx.Done():
	case <-r.made:
	case <-t.C:
	}
	for ctx.Err() == nil {
		one, cancel := context.WithTimeout(ctx, r.cfg.LeaseDuration/2)
		r.recall(one)
		next, err := r.renewOnce(one, lease)
		cancel()
		wait, wake := every-rand.N(every/25+1), notify.Signal(nil)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			if failures == 0 {
				r.deps.Logger.Warn("the node's lease is not renewed; it is tried again", "node", r.cfg.Name, "err", err)
			}
			lease = nil // another client may have changed it
			r.recalled = r.recalled && !apierrors.IsConflict(err)
			failures++
			wait, wake = min(wait, backoff.Delay(failures, err)), r.renewNow
		default:
			if failures > 0 {
				r.deps.Logger.Info("the node's lease is renewed again", "node", r.cfg.Name)
			}
			lease, failures = next, 0
			r.mu.Lock()
			r.leased = time.Now()
			r.mu.Unlock()
		}
		sleep(ctx, wait, wake)
	}
}

// recall reads when the Lease was last renewed, if another client did that: the agent before this
// one, or the client whose renewal conflicted. The time may be in the future, because the clock may
// have been put back since then. If the Lease cannot be read soon, it is renewed without this.
func (r *Registry) recall(ctx context.Context) {
	if r.recalled {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, r.cfg.LeaseDuration/8)
	defer cancel()
	lease, err := r.deps.Leases.Get(ctx, v1.NamespaceNodeLease, r.cfg.Name)
	switch {
	case apierrors.IsNotFound(err):
		r.recalled = true
	case err == nil:
		r.recalled = true
		r.renewedAt(lease)
	}
}

// renewedAt records when a Lease was renewed.
func (r *Registry) renewedAt(lease *coordinationv1.Lease) {
	if at := lease.Spec.RenewTime; at != nil && at.After(r.renewed) {
		r.renewed = at.Time
	}
}

// renewOnce renews the Lease. It updates the Lease that it wrote last if that is known, else
// whatever the API server has, and makes a new one if there is none. It does not read the Lease
// first: a renewal counts even if its answer comes too late.
func (r *Registry) renewOnce(ctx context.Context, last *coordinationv1.Lease) (lease *coordinationv1.Lease, err error) {
	if last != nil {
		lease, err = r.deps.Leases.Update(ctx, r.lease(last))
	} else {
		lease, err = r.overwrite(ctx)
	}
	if apierrors.IsNotFound(err) {
		return r.deps.Leases.Create(ctx, r.lease(nil))
	}
	return lease, err
}

// overwrite renews the Lease whatever the API server has in it.
func (r *Registry) overwrite(ctx context.Context) (*coordinationv1.Lease, error) {
	want := r.lease(nil)
	owners := []any{map[string]any{"$patch": "replace"}} // an earlier owner may not exist any more
	for _, o := range want.OwnerReferences {
		owners = append(owners, o)
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"ownerReferences": owners}, "spec": want.Spec})
	if err != nil {
		return nil, fmt.Errorf("encoding the node's lease: %w", err)
	}
	return r.deps.Leases.Patch(ctx, want.Namespace, want.Name, patch)
}

// lease returns the Lease to write now. The Node owns the Lease if there is a Node. Its renew time
// always grows, at least by the smallest step, even if the clock was put back: a controller takes a
// node for dead if the renew time of its Lease does not grow.
func (r *Registry) lease(last *coordinationv1.Lease) *coordinationv1.Lease {
	out := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: r.cfg.Name, Namespace: v1.NamespaceNodeLease}}
	if last != nil {
		out = last.DeepCopy()
		r.renewedAt(last)
	}
	r.renewed = later(time.Now(), r.renewed)
	now := metav1.NewMicroTime(r.renewed)
	out.Spec.HolderIdentity = &r.cfg.Name
	out.Spec.LeaseDurationSeconds = ptr.To(int32(r.cfg.LeaseDuration / time.Second))
	out.Spec.RenewTime = &now
	if node := r.Node(); node != nil {
		out.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID}}
	}
	return out
}

// later returns the wall clock's now in microseconds, or the smallest time after last if now is not
// after last.
func later(now, last time.Time) time.Time {
	now = now.Round(0).Truncate(time.Microsecond)
	if !now.After(last) {
		now = last.Truncate(time.Microsecond).Add(time.Microsecond)
	}
	return now
}
