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
)

// renewals is how often a Lease is renewed within its duration, as the kubelet does: every 10 s of 40 s.
const renewals = 4

// renew keeps the node's Lease until ctx ends. A request that the API server does not answer takes at most half of the Lease's duration.
func (r *Registry) renew(ctx context.Context) {
	every := r.cfg.LeaseDuration / renewals
	var lease *coordinationv1.Lease
	failures := 0
	t := time.NewTimer(every)
	defer t.Stop()
	select { // the Lease belongs to the Node; without one it is made all the same
	case <-ctx.Done():
	case <-r.made:
	case <-t.C:
	}
	for ctx.Err() == nil {
		one, cancel := context.WithTimeout(ctx, r.cfg.LeaseDuration/2)
		r.recall(one)
		next, err := r.renewOnce(one, lease)
		cancel()
		wait := every - rand.N(every/25+1)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			if failures == 0 {
				r.deps.Logger.Warn("the node's lease is not renewed; it is tried again", "node", r.cfg.Name, "err", err)
			}
			lease = nil // somebody may have changed it
			r.recalled = r.recalled && !apierrors.IsConflict(err)
			failures++
			wait = min(wait, retry.Delay(failures, err))
		default:
			if failures > 0 {
				r.deps.Logger.Info("the node's lease is renewed again", "node", r.cfg.Name)
			}
			lease, failures = next, 0
		}
		r.sleep(ctx, wait, false)
	}
}

// recall reads when the Lease was renewed last, where somebody else did that: the agent's predecessor, or who made a renewal conflict. It may be later than now: the clock may have been
// put back meanwhile. Where it cannot be read soon, the Lease is renewed all the same.
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

// renewedAt takes note of when a Lease was renewed.
func (r *Registry) renewedAt(lease *coordinationv1.Lease) {
	if at := lease.Spec.RenewTime; at != nil && at.After(r.renewed) {
		r.renewed = at.Time
	}
}

// renewOnce renews the Lease that was written last, or, where that is not known, whichever the API server has, or a new one. What it has is not read first: a renewal whose
// answer comes too late for us has still been heard.
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
	owners := []any{map[string]any{"$patch": "replace"}} // an owner of before may be gone
	for _, o := range want.OwnerReferences {
		owners = append(owners, o)
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"ownerReferences": owners}, "spec": want.Spec})
	if err != nil {
		return nil, fmt.Errorf("encoding the node's lease: %w", err)
	}
	return r.deps.Leases.Patch(ctx, want.Namespace, want.Name, patch)
}

// lease returns the Lease as it is to be written now. It belongs to the Node, where there is one. Its time is always later than it was, be it by as little as there is, also where
// the clock was put back: whoever watches Leases takes one whose time does not grow for that of a node that is dead.
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

// later returns now, in microseconds by the wall clock, or what comes after last where now does not.
func later(now, last time.Time) time.Time {
	now = now.Round(0).Truncate(time.Microsecond)
	if !now.After(last) {
		now = last.Truncate(time.Microsecond).Add(time.Microsecond)
	}
	return now
}
