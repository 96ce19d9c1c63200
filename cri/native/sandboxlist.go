package native

import (
	"cmp"
	"context"
	"slices"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// stateOf returns the state of a sandbox in the CRI's form.
func stateOf(ready bool) runtimeapi.PodSandboxState {
	if ready {
		return runtimeapi.PodSandboxState_SANDBOX_READY
	}
	return runtimeapi.PodSandboxState_SANDBOX_NOTREADY
}

// PodSandboxStatus implements [cri.SandboxRuntime].
func (r *Runtime) PodSandboxStatus(ctx context.Context, id string) (*runtimeapi.PodSandboxStatus, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	sb, err := r.store.sandbox(id)
	if err != nil {
		return nil, err
	}
	record, ready := sb.snapshot()
	network := &runtimeapi.PodSandboxNetworkStatus{}
	for i, ip := range record.IPs {
		if i == 0 {
			network.Ip = ip.String()
			continue
		}
		network.AdditionalIps = append(network.AdditionalIps, &runtimeapi.PodIP{Ip: ip.String()})
	}
	return &runtimeapi.PodSandboxStatus{
		Id: sb.id, Metadata: sb.config.GetMetadata(), State: stateOf(ready), CreatedAt: record.CreatedAt,
		Network: network, Labels: sb.config.GetLabels(), Annotations: sb.config.GetAnnotations(),
		RuntimeHandler: record.Handler,
		Linux:          &runtimeapi.LinuxPodSandboxStatus{Namespaces: &runtimeapi.Namespace{Options: sb.namespaces()}},
	}, nil
}

// ListPodSandbox implements [cri.SandboxRuntime].
func (r *Runtime) ListPodSandbox(
	ctx context.Context, filter *runtimeapi.PodSandboxFilter,
) ([]*runtimeapi.PodSandbox, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	var out []*runtimeapi.PodSandbox
	for _, sb := range r.store.allSandboxes() {
		record, ready := sb.snapshot()
		item := &runtimeapi.PodSandbox{
			Id: sb.id, Metadata: sb.config.GetMetadata(), State: stateOf(ready), CreatedAt: record.CreatedAt,
			Labels: sb.config.GetLabels(), Annotations: sb.config.GetAnnotations(), RuntimeHandler: record.Handler,
		}
		if (filter.GetId() == "" || filter.GetId() == item.Id) &&
			(filter.GetState() == nil || filter.GetState().GetState() == item.State) &&
			selects(filter.GetLabelSelector(), item.Labels) {
			out = append(out, item)
		}
	}
	slices.SortFunc(out, func(a, b *runtimeapi.PodSandbox) int { return cmp.Compare(b.CreatedAt, a.CreatedAt) })
	return out, nil
}

// selects reports whether labels have all that is asked for.
func selects(selector, labels map[string]string) bool {
	for k, v := range selector {
		if got, ok := labels[k]; !ok || got != v {
			return false
		}
	}
	return true
}
