package userns

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/containerd/errdefs"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berthd/berth/cri"
)

// askTimeout bounds the requests for the ids of a pod's sandboxes.
const askTimeout = 5 * time.Second

// Sandboxes are the calls of a runtime that return the ids of its sandboxes. Every cri.Runtime has
// them.
type Sandboxes interface {
	ListPodSandbox(ctx context.Context, filter *runtimeapi.PodSandboxFilter) ([]*runtimeapi.PodSandbox, error)
	PodSandboxStatus(ctx context.Context, id string) (*runtimeapi.PodSandboxStatus, error)
}

// UsedBy returns a function that returns the ids of a pod's sandboxes.
func UsedBy(runtime Sandboxes) func(uid types.UID) ([]Range, error) {
	return func(uid types.UID) ([]Range, error) { return used(runtime, uid) }
}

func used(runtime Sandboxes, uid types.UID) ([]Range, error) {
	ctx, cancel := context.WithTimeout(context.Background(), askTimeout)
	defer cancel()
	list, err := runtime.ListPodSandbox(ctx,
		&runtimeapi.PodSandboxFilter{LabelSelector: map[string]string{cri.LabelPodUID: string(uid)}})
	if err != nil {
		return nil, fmt.Errorf("asking for its sandboxes: %w", err)
	}
	var out []Range
	for _, sandbox := range list {
		st, err := runtime.PodSandboxStatus(ctx, sandbox.Id)
		if errdefs.IsNotFound(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("asking for sandbox %s: %w", sandbox.Id, err)
		}
		users := st.GetLinux().GetNamespaces().GetOptions().GetUsernsOptions()
		switch {
		case users == nil || users.GetMode() == runtimeapi.NamespaceMode_POD && len(users.GetUids()) == 0:
			return nil, fmt.Errorf("the runtime does not say which ids sandbox %s has", sandbox.Id)
		case users.GetMode() != runtimeapi.NamespaceMode_POD: // the sandbox has the host's ids
			continue
		}
		for _, ids := range slices.Concat(users.GetUids(), users.GetGids()) {
			out = append(out, Range{First: ids.GetHostId(), Length: ids.GetLength()})
		}
	}
	return out, nil
}
