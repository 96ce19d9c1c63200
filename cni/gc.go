package cni

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/containerd/errdefs"
	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/types"
)

// claims are the sandboxes that GC is detaching, by ID. The channel closes when GC is done with the
// sandbox.
type claims struct {
	mu   sync.Mutex
	byID map[string]chan struct{}
}

// take claims sandboxes that nobody has claimed.
func (c *claims) take(ids []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.byID = map[string]chan struct{}{}
	for _, id := range ids {
		c.byID[id] = make(chan struct{})
	}
}

// release ends the claim of a sandbox.
func (c *claims) release(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	close(c.byID[id])
	delete(c.byID, id)
}

// wait returns when a sandbox is not claimed.
func (c *claims) wait(ctx context.Context, id string) error {
	c.mu.Lock()
	claimed, ok := c.byID[id]
	c.mu.Unlock()
	if !ok {
		return nil
	}
	select {
	case <-claimed:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// begin starts a call for a sandbox, after GC if that is detaching the sandbox. The caller releases
// one unit of n.calls if there is no error.
func (n *Network) begin(ctx context.Context, id string) error {
	if err := n.calls.Acquire(ctx, 1); err != nil {
		return err
	}
	if err := n.stale.wait(ctx, id); err != nil {
		n.calls.Release(1)
		return fmt.Errorf("wait until sandbox %s is detached: %w", id, err)
	}
	return nil
}

// GC detaches every sandbox that is not among the valid ones, and lets plugins that can (version
// 1.1.0) free what belongs to none of the valid ones. valid is called when no other call is
// running, maybe twice. It must return the IDs of all sandboxes that exist or are being made.
//
// Other sandboxes can be attached and detached while GC detaches. They wait while the plugins free,
// at most as long as [Config.PluginTimeout]. What could not be detached is not freed.
func (n *Network) GC(ctx context.Context, valid func() []string) error {
	if err := n.collecting.Acquire(ctx, 1); err != nil {
		return err
	}
	defer n.collecting.Release(1)
	stale, err := n.claimStale(ctx, valid)
	if err != nil {
		return err
	}
	var errs []error
	for _, id := range stale {
		errs = append(errs, n.delByID(ctx, id))
		n.stale.release(id)
	}
	return errors.Join(append(errs, n.free(ctx, valid))...)
}

// claimStale claims and returns the sandboxes that are attached and not valid.
func (n *Network) claimStale(ctx context.Context, valid func() []string) ([]string, error) {
	if err := n.calls.Acquire(ctx, maxCalls); err != nil {
		return nil, err
	}
	defer n.calls.Release(maxCalls)
	keep := map[string]bool{}
	for _, id := range valid() {
		keep[id] = true
	}
	ids, err := n.records.ids()
	if err != nil {
		return nil, err
	}
	var stale []string
	for _, id := range ids {
		if !keep[id] {
			stale = append(stale, id)
		}
	}
	n.stale.take(stale)
	return stale, nil
}

// free lets the plugins free what belongs to no sandbox. No sandbox may be attached meanwhile: the
// plugins would take it for one that is not valid.
func (n *Network) free(ctx context.Context, valid func() []string) error {
	if err := n.calls.Acquire(ctx, maxCalls); err != nil {
		return err
	}
	defer n.calls.Release(maxCalls)
	list, err := n.load()
	if errdefs.IsUnavailable(err) {
		return nil // without a network there is nothing more to free
	}
	if err != nil {
		return err
	}
	// libcni detaches what is not named here, and would repeat each DEL that has failed.
	undetached, err := n.records.ids()
	if err != nil {
		return err
	}
	args, named := &libcni.GCArgs{}, map[string]bool{}
	for _, id := range append(valid(), undetached...) {
		if !named[id] {
			named[id] = true
			args.ValidAttachments = append(args.ValidAttachments, types.GCAttachment{ContainerID: id, IfName: Interface})
		}
	}
	ctx, cancel := context.WithTimeout(ctx, n.cfg.PluginTimeout)
	defer cancel()
	if err := n.cni.GCNetworkList(ctx, list, args); err != nil {
		return fmt.Errorf("free what is unused on network %q: %w", list.Name, err)
	}
	return nil
}
