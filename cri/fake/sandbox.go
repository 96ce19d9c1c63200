package fake

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berthd/berth/cri"
)

// sandbox is one sandbox. The node's lock guards what can change.
type sandbox struct {
	id, name string
	seq      int
	config   *runtimeapi.PodSandboxConfig
	handler  string
	created  time.Time

	ready bool
	ip    netip.Addr // not valid on the host's network, and after the network was taken down
}

func (s *sandbox) pod() cri.PodID {
	m := s.config.GetMetadata()
	return cri.PodID{UID: types.UID(m.GetUid()), Namespace: m.GetNamespace(), Name: m.GetName()}
}

// RunPodSandbox makes a ready sandbox. The sandbox has an address unless it is on the host's
// network. The call fails with class AlreadyExists if a sandbox with the same name, namespace, uid
// and attempt was not removed yet.
func (r *Runtime) RunPodSandbox(
	ctx context.Context, config *runtimeapi.PodSandboxConfig, handler string,
) (string, error) {
	n := r.node
	m := config.GetMetadata()
	about := Call{
		Method: "RunPodSandbox", Request: &runtimeapi.RunPodSandboxRequest{Config: config, RuntimeHandler: handler},
		Pod:     cri.PodID{UID: types.UID(m.GetUid()), Namespace: m.GetNamespace(), Name: m.GetName()},
		Attempt: m.GetAttempt(),
	}
	return call(ctx, r, about, func(context.Context) (string, error) {
		if m == nil {
			return "", unknown("sandbox config must include metadata")
		}
		if !slices.Contains([]string{"", "runc", "plain"}, handler) {
			return "", unknown(fmt.Sprintf("unable to get OCI runtime for sandbox: no runtime for %q is configured",
				handler))
		}
		n.mu.Lock()
		defer n.mu.Unlock()
		name := strings.Join([]string{m.GetName(), m.GetNamespace(), m.GetUid(), fmt.Sprint(m.GetAttempt())}, "_")
		for _, other := range n.sandboxes {
			if other.name == name {
				return "", errdefs.ErrAlreadyExists.WithMessage(
					fmt.Sprintf("failed to reserve sandbox name %q: name %q is reserved for %q", name, name, other.id))
			}
		}
		s := &sandbox{name: name, config: clone(config), handler: handler, created: time.Now(), ready: true}
		s.id, s.seq = n.newID("sandbox")
		if !hostNetwork(config) {
			ip, err := n.lease(s.id)
			if err != nil {
				return "", err
			}
			s.ip = ip
		}
		n.sandboxes[s.id] = s
		n.sawSandbox(s, n.store)
		n.emit(cri.ContainerCreated, s.id, s.pod())
		n.emit(cri.ContainerStarted, s.id, s.pod())
		return s.id, nil
	})
}

// StopPodSandbox kills the sandbox's containers, stops the sandbox and frees its address. It does
// the same for a sandbox that is not ready any more. It does nothing if there is no such sandbox.
func (r *Runtime) StopPodSandbox(ctx context.Context, id string) error {
	about := Call{Method: "StopPodSandbox", ID: id, Request: &runtimeapi.StopPodSandboxRequest{PodSandboxId: id}}
	return do(ctx, r, about, func(ctx context.Context) error { return r.node.stopSandbox(ctx, id) })
}

func (n *node) stopSandbox(ctx context.Context, id string) error {
	n.mu.Lock()
	members := n.members(id)
	n.mu.Unlock()
	for _, c := range members {
		if err := n.stopContainer(ctx, c, 0); err != nil {
			return fmt.Errorf("failed to stop container %q: %w", c.id, err)
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	s := n.sandboxes[id]
	if s == nil {
		return nil
	}
	n.sandboxDied(s)
	n.release(s)
	return nil
}

// RemovePodSandbox stops the sandbox, and removes its containers and the sandbox itself.
func (r *Runtime) RemovePodSandbox(ctx context.Context, id string) error {
	n := r.node
	about := Call{Method: "RemovePodSandbox", ID: id, Request: &runtimeapi.RemovePodSandboxRequest{PodSandboxId: id}}
	return do(ctx, r, about, func(ctx context.Context) error {
		if err := n.stopSandbox(ctx, id); err != nil {
			return fmt.Errorf("failed to forcibly stop sandbox %q: %w", id, err)
		}
		n.mu.Lock()
		members := n.members(id)
		n.mu.Unlock()
		for _, c := range members {
			if err := n.removeContainer(ctx, c.id); err != nil {
				return fmt.Errorf("failed to remove container %q: %w", c.id, err)
			}
		}
		n.mu.Lock()
		defer n.mu.Unlock()
		if s := n.sandboxes[id]; s != nil {
			delete(n.sandboxes, id)
			n.emit(cri.ContainerDeleted, id, s.pod())
		}
		return nil
	})
}

// PodSandboxStatus returns a sandbox's status; class NotFound if there is none of that id.
func (r *Runtime) PodSandboxStatus(ctx context.Context, id string) (*runtimeapi.PodSandboxStatus, error) {
	n := r.node
	about := Call{Method: "PodSandboxStatus", ID: id, Request: &runtimeapi.PodSandboxStatusRequest{PodSandboxId: id}}
	return call(ctx, r, about, func(context.Context) (*runtimeapi.PodSandboxStatus, error) {
		n.mu.Lock()
		defer n.mu.Unlock()
		s := n.sandboxes[id]
		if s == nil {
			return nil, errdefs.ErrNotFound.WithMessage(fmt.Sprintf("an error occurred when try to find sandbox %q: "+
				"not found", id))
		}
		return s.status(), nil
	})
}

// ListPodSandbox returns the sandboxes that match, oldest first.
func (r *Runtime) ListPodSandbox(
	ctx context.Context, filter *runtimeapi.PodSandboxFilter,
) ([]*runtimeapi.PodSandbox, error) {
	n := r.node
	about := Call{Method: "ListPodSandbox", Request: &runtimeapi.ListPodSandboxRequest{Filter: filter}}
	return call(ctx, r, about, func(context.Context) ([]*runtimeapi.PodSandbox, error) {
		n.mu.Lock()
		defer n.mu.Unlock()
		var list []*runtimeapi.PodSandbox
		for _, s := range n.chosenSandboxes(func(s *sandbox) bool {
			return (filter.GetId() == "" || filter.GetId() == s.id) &&
				(filter.GetState() == nil || filter.GetState().GetState() == s.state()) &&
				selects(filter.GetLabelSelector(), s.config.GetLabels())
		}) {
			list = append(list, s.item())
		}
		return list, nil
	})
}

func (s *sandbox) state() runtimeapi.PodSandboxState {
	if s.ready {
		return runtimeapi.PodSandboxState_SANDBOX_READY
	}
	return runtimeapi.PodSandboxState_SANDBOX_NOTREADY
}

func (s *sandbox) status() *runtimeapi.PodSandboxStatus {
	config := clone(s.config)
	network := &runtimeapi.PodSandboxNetworkStatus{}
	if s.ip.IsValid() {
		network.Ip = s.ip.String()
	}
	return &runtimeapi.PodSandboxStatus{
		Id: s.id, Metadata: config.GetMetadata(), State: s.state(), CreatedAt: s.created.UnixNano(), Network: network,
		Linux: &runtimeapi.LinuxPodSandboxStatus{
			Namespaces: &runtimeapi.Namespace{Options: config.GetLinux().GetSecurityContext().GetNamespaceOptions()},
		},
		Labels: config.GetLabels(), Annotations: config.GetAnnotations(), RuntimeHandler: s.handler,
	}
}

func (s *sandbox) item() *runtimeapi.PodSandbox {
	config := clone(s.config)
	return &runtimeapi.PodSandbox{
		Id: s.id, Metadata: config.GetMetadata(), State: s.state(), CreatedAt: s.created.UnixNano(),
		Labels: config.GetLabels(), Annotations: config.GetAnnotations(), RuntimeHandler: s.handler,
	}
}

// sandboxDied makes a sandbox not ready. A second call does nothing. The caller holds the lock.
func (n *node) sandboxDied(s *sandbox) {
	if s.ready {
		s.ready = false
		n.emit(cri.ContainerStopped, s.id, s.pod())
	}
}

// lease takes the next free address. The caller holds the lock.
func (n *node) lease(owner string) (netip.Addr, error) {
	first := n.cfg.PodCIDR.Masked().Addr().Next() // the bridge's
	for ip, wrapped := n.lastIP.Next(), false; ; ip = ip.Next() {
		if !n.cfg.PodCIDR.Contains(ip) {
			if wrapped {
				return netip.Addr{}, unknown("failed to setup network for sandbox: no IP addresses available in " +
					"range set")
			}
			ip, wrapped = first, true
			continue
		}
		if n.leases[ip] == "" {
			n.leases[ip], n.lastIP = owner, ip
			return ip, nil
		}
	}
}

// release frees a sandbox's address. A second call does nothing. The caller holds the lock.
func (n *node) release(s *sandbox) {
	if s.ip.IsValid() {
		delete(n.leases, s.ip)
		s.ip = netip.Addr{}
	}
}

func hostNetwork(config *runtimeapi.PodSandboxConfig) bool {
	return config.GetLinux().GetSecurityContext().GetNamespaceOptions().GetNetwork() == runtimeapi.NamespaceMode_NODE
}
