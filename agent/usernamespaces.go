package agent

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/berthd/berth/agent/node"
	"github.com/berthd/berth/agent/userns"
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
