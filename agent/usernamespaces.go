package agent

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/containerd/errdefs"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berthd/berth/agent/node"
	"github.com/berthd/berth/agent/userns"
	"github.com/berthd/berth/cri"
)

// userNamespaces gives pods with hostUsers: false their ids, and knows which runtime handlers can use them.
type userNamespaces struct {
	*userns.Allocator
	node *node.Node
}

func (a *Agent) userNamespaces() userNamespaces {
	ids := uint32(userns.Unit)
	if u := a.cfg.Kubelet.UserNamespaces; u != nil && u.IDsPerPod != nil {
		ids = uint32(*u.IDsPerPod) // the config's validation has seen to its fitting
	}
	allocator := userns.New(userns.Config{
		PodsDir: filepath.Join(a.cfg.RootDir, "pods"), IDsPerPod: ids, MaxPods: a.node.MaxPods(), Logger: a.log,
		Used: a.usedIDs,
		Host: func() (userns.Range, error) { return userns.HostRange(context.Background(), ids, userns.HostLookups()) },
	})
	return userNamespaces{Allocator: allocator, node: a.node}
}

// Supported says why a runtime handler, empty for the runtime's own choice, cannot give a pod users of its own; nil where it can.
func (u userNamespaces) Supported(handler string) error {
	switch {
	case u.node.UserNamespaces(handler):
		return nil
	case handler == "":
		return errors.New("can't set `spec.hostUsers: false`, runtime does not support user namespaces")
	}
	return fmt.Errorf("can't set `spec.hostUsers: false`, RuntimeClass handler %q does not support user namespaces", handler)
}

// usedIDs returns the ids that the runtime's sandboxes of a pod have.
func (a *Agent) usedIDs(uid podUID) ([]userns.Range, error) {
	ctx, cancel := context.WithTimeout(context.Background(), runtimeCheck)
	defer cancel()
	list, err := a.deps.Runtime.ListPodSandbox(ctx, &runtimeapi.PodSandboxFilter{LabelSelector: map[string]string{cri.LabelPodUID: string(uid)}})
	if err != nil {
		return nil, fmt.Errorf("asking for its sandboxes: %w", err)
	}
	var out []userns.Range
	for _, sandbox := range list {
		st, err := a.deps.Runtime.PodSandboxStatus(ctx, sandbox.Id)
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
		case users.GetMode() != runtimeapi.NamespaceMode_POD: // the host's own
			continue
		}
		for _, ids := range slices.Concat(users.GetUids(), users.GetGids()) {
			out = append(out, userns.Range{First: ids.GetHostId(), Length: ids.GetLength()})
		}
	}
	return out, nil
}
