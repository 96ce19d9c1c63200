package native

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"

	"github.com/containerd/errdefs/pkg/errgrpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// networkInfo is the key of the network's configuration in a verbose status, as containerd has it.
const networkInfo = "cniconfig"

// Version implements [cri.Runtime]. It fails if containerd does not answer: callers ask for the
// version to learn whether the runtime works.
func (r *Runtime) Version(ctx context.Context) (*runtimeapi.VersionResponse, error) {
	if err := r.containerdAnswers(ctx); err != nil {
		return nil, err
	}
	return &runtimeapi.VersionResponse{
		Version: "0.1.0", RuntimeName: runtimeName, RuntimeVersion: cmp.Or(r.cfg.Version, "unknown"),
		RuntimeApiVersion: apiVersion,
	}, nil
}

// containerdAnswers returns an error if containerd does not answer.
func (r *Runtime) containerdAnswers(ctx context.Context) error {
	ctx, cancel := r.bounded(ctx)
	defer cancel()
	if _, err := r.client.Version(ctx); err != nil {
		return fmt.Errorf("ask containerd at %s for its version: %w", r.cfg.Containerd, errgrpc.ToNative(err))
	}
	return nil
}

// Status implements [cri.Runtime]. The runtime is ready if containerd answers. A verbose status has
// the configuration of the network, as far as it can be read.
func (r *Runtime) Status(ctx context.Context, verbose bool) (*runtimeapi.StatusResponse, error) {
	ctx, cancel := r.bounded(ctx)
	defer cancel()
	down := r.containerdAnswers(ctx)
	out := &runtimeapi.StatusResponse{
		Status:          &runtimeapi.RuntimeStatus{Conditions: conditions(down, r.cfg.Network.Status(ctx))},
		RuntimeHandlers: r.handlers,
		Features:        &runtimeapi.RuntimeFeatures{SupplementalGroupsPolicy: true},
	}
	if verbose {
		out.Info = r.info()
	}
	return out, nil
}

// info returns what only a verbose status has. The conditions say why a part of it is missing.
func (r *Runtime) info() map[string]string {
	var compact bytes.Buffer
	config, err := r.cfg.Network.Config()
	if err != nil || json.Compact(&compact, config) != nil {
		return nil
	}
	return map[string]string{networkInfo: compact.String()}
}

// conditions returns the CRI's two conditions. The errors say why containerd or the network is not
// ready.
func conditions(down, network error) []*runtimeapi.RuntimeCondition {
	condition := func(kind string, reason string, err error) *runtimeapi.RuntimeCondition {
		if err == nil {
			return &runtimeapi.RuntimeCondition{Type: kind, Status: true}
		}
		return &runtimeapi.RuntimeCondition{Type: kind, Reason: reason, Message: err.Error()}
	}
	return []*runtimeapi.RuntimeCondition{
		condition(runtimeapi.RuntimeReady, "ContainerdDoesNotAnswer", down),
		condition(runtimeapi.NetworkReady, "NetworkPluginNotReady", network),
	}
}
