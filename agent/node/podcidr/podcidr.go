// Package podcidr gives the container runtime the range of the pods' addresses.
package podcidr

import (
	"context"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"github.com/containerd/errdefs"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berthd/berth/internal/notify"
	"github.com/berthd/berth/internal/retry"
)

// backoff is the back-off after the runtime did not take the range.
var backoff = retry.Backoff{First: 200 * time.Millisecond, Most: 10 * time.Second}

// Runtime takes the range; every cri.Runtime implements it.
type Runtime interface {
	UpdateRuntimeConfig(ctx context.Context, config *runtimeapi.RuntimeConfig) error
}

// Keeper keeps the runtime's range up to date. Make it with [New].
type Keeper struct {
	runtime Runtime
	log     *slog.Logger
	wanted  atomic.Pointer[string]
	changed notify.Signal
}

// New returns a keeper that begins with the config's range. The range is empty if the config has
// none.
func New(runtime Runtime, configured string, log *slog.Logger) *Keeper {
	k := &Keeper{runtime: runtime, log: log, changed: notify.New()}
	k.wanted.Store(&configured)
	return k
}

// Known takes notice of the Node's range. A Node without a range changes nothing.
func (k *Keeper) Known(n *v1.Node) {
	cidr := strings.Join(n.Spec.PodCIDRs, ",")
	if cidr == "" {
		cidr = n.Spec.PodCIDR
	}
	if cidr == "" || cidr == *k.wanted.Load() {
		return
	}
	k.wanted.Store(&cidr)
	k.changed.Notify()
}

// Run gives the runtime the range, at first and after each change of the range, until ctx ends.
func (k *Keeper) Run(ctx context.Context) error {
	given, failures := "", 0
	for {
		want := *k.wanted.Load()
		if want == given {
			select {
			case <-ctx.Done():
				return nil
			case <-k.changed:
			}
			continue
		}
		err := k.runtime.UpdateRuntimeConfig(ctx,
			&runtimeapi.RuntimeConfig{NetworkConfig: &runtimeapi.NetworkConfig{PodCidr: want}})
		switch {
		case err == nil:
			k.log.Info("runtime has the pods' range of addresses", "was", given, "podCIDR", want)
			given, failures = want, 0
		case errdefs.IsNotImplemented(err):
			given, failures = want, 0
		default:
			if failures++; failures == 1 && ctx.Err() == nil {
				k.log.Warn("runtime has not taken the pods' range of addresses; it is tried again", "podCIDR", want,
					"err", err)
			}
			if !retry.Sleep(ctx, backoff.Jittered(failures)) {
				return nil
			}
		}
	}
}
