package native

import (
	"bytes"
	"context"
	"encoding/json"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// networkInfo is the key of the network's configuration in a verbose status, as containerd has it.
const networkInfo = "cniconfig"

// Status implements [cri.Runtime]. The runtime is ready if containerd answers. A verbose status has
// the configuration of the network, as far as it can be read.
func (r *Runtime) Status(ctx context.Context, verbose bool) (*runtimeapi.StatusResponse, error) {
	ctx, cancel := r.bounded(ctx)
	defer cancel()
	_, down := r.client.Version(ctx)
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
