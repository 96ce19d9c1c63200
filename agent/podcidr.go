package agent

import (
	"context"
	"strings"
	"sync/atomic"
	"time"

	"github.com/containerd/errdefs"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berthd/berth/agent/cluster"
	"github.com/berthd/berth/agent/tasks"
)

// podCIDRRetry is the back-off after a runtime that could not be told.
var podCIDRRetry = cluster.Backoff{First: 200 * time.Millisecond, Most: 10 * time.Second}

// podCIDR is the range of the pods' addresses: the Node's, and until that has one, the config's. A runtime that makes its network's configuration from a
// template waits for it.
type podCIDR struct {
	wanted atomic.Pointer[string]
	bell   chan struct{}
}

func newPodCIDR(configured string) *podCIDR {
	c := &podCIDR{bell: make(chan struct{}, 1)}
	c.wanted.Store(&configured)
	return c
}

// known takes notice of the Node's range. A Node that has none yet says nothing.
func (c *podCIDR) known(n *v1.Node) {
	cidr := strings.Join(n.Spec.PodCIDRs, ",")
	if cidr == "" {
		cidr = n.Spec.PodCIDR
	}
	if cidr == "" || cidr == *c.wanted.Load() {
		return
	}
	c.wanted.Store(&cidr)
	ring(c.bell)
}

// tellPodCIDR tells the runtime of the range, at first and when it changes.
func (a *Agent) tellPodCIDR(ctx context.Context) error {
	told, failures := "", 0
	for {
		want := *a.podCIDR.wanted.Load()
		if want == told {
			select {
			case <-ctx.Done():
				return nil
			case <-a.podCIDR.bell:
			}
			continue
		}
		err := a.deps.Runtime.UpdateRuntimeConfig(ctx, &runtimeapi.RuntimeConfig{NetworkConfig: &runtimeapi.NetworkConfig{PodCidr: want}})
		switch {
		case err == nil:
			a.log.Info("runtime told of the pods' range of addresses", "was", told, "podCIDR", want)
			told, failures = want, 0
		case errdefs.IsNotImplemented(err):
			told, failures = want, 0
		default:
			if failures++; failures == 1 && ctx.Err() == nil {
				a.log.Warn("runtime not told of the pods' range of addresses; it is tried again", "podCIDR", want, "err", err)
			}
			if !tasks.Sleep(ctx, podCIDRRetry.Delay(failures, err)) {
				return nil
			}
		}
	}
}
