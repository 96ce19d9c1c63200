package fake

import (
	"fmt"
	"strings"

	"github.com/containerd/errdefs"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berthd/berth/cri"
)

// Containers and sandboxes are named, wherever this file takes a name, by their id or as people name them: a container by
// "container", "pod/container" or "namespace/pod/container", a sandbox by "pod" or "namespace/pod". Of several, the newest is meant.

// Exit ends a running container with an exit code, as if its process had ended by itself; class NotFound if none of that name runs.
func (r *Runtime) Exit(name string, code int32) error {
	return r.end(name, code, "")
}

// OOMKill ends a running container as the kernel does when its memory is used up.
func (r *Runtime) OOMKill(name string) error {
	return r.end(name, killedCode, oomReason)
}

func (r *Runtime) end(name string, code int32, reason string) error {
	n := r.node
	n.mu.Lock()
	defer n.mu.Unlock()
	for c := range n.named(name) {
		if c.running() {
			n.exit(c, code, reason)
			return nil
		}
	}
	return errdefs.ErrNotFound.WithMessage(fmt.Sprintf("no running container %q", name))
}

// Container returns the status of the newest container of that name; nil if there is none. It is no call and is in no journal.
func (r *Runtime) Container(name string) *runtimeapi.ContainerStatus {
	n := r.node
	n.mu.Lock()
	defer n.mu.Unlock()
	for c := range n.named(name) {
		return n.containerStatus(c)
	}
	return nil
}

// Sandbox returns the status of the newest sandbox of that name; nil if there is none. It is no call and is in no journal.
func (r *Runtime) Sandbox(name string) *runtimeapi.PodSandboxStatus {
	n := r.node
	n.mu.Lock()
	defer n.mu.Unlock()
	if s := n.sandboxNamed(name); s != nil {
		return s.status()
	}
	return nil
}

// Log writes lines to a running container's log, as if it had printed them; lines that begin with "stderr: " to stderr.
func (r *Runtime) Log(name string, lines ...string) error {
	n := r.node
	n.mu.Lock()
	defer n.mu.Unlock()
	for c := range n.named(name) {
		if c.running() {
			return n.writeLog(c, lines...)
		}
	}
	return errdefs.ErrNotFound.WithMessage(fmt.Sprintf("no running container %q", name))
}

// LoseSandbox makes a sandbox not ready, as when its pause process is killed: its containers keep running, and its address is kept until it is
// stopped.
func (r *Runtime) LoseSandbox(name string) error {
	n := r.node
	n.mu.Lock()
	defer n.mu.Unlock()
	s := n.sandboxNamed(name)
	if s == nil {
		return errdefs.ErrNotFound.WithMessage(fmt.Sprintf("no sandbox %q", name))
	}
	n.sandboxDied(s)
	return nil
}

// ForgetSandbox makes a sandbox vanish with its containers, as when the runtime's state was wiped or somebody removed them by hand.
func (r *Runtime) ForgetSandbox(name string) error {
	n := r.node
	n.mu.Lock()
	defer n.mu.Unlock()
	s := n.sandboxNamed(name)
	if s == nil {
		return errdefs.ErrNotFound.WithMessage(fmt.Sprintf("no sandbox %q", name))
	}
	for _, c := range n.members(s.id) {
		n.exit(c, killedCode, "")
		delete(n.containers, c.id)
		n.emit(cri.ContainerDeleted, c.id, c.pod)
	}
	n.sandboxDied(s)
	n.release(s)
	delete(n.sandboxes, s.id)
	n.emit(cri.ContainerDeleted, s.id, s.pod())
	return nil
}

// Reboot does to sandboxes and containers what a reboot of the machine does: all are there, none runs, and how containers ended is not known. The
// connections are not ended: see [Runtime.Sever].
func (r *Runtime) Reboot() {
	n := r.node
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, c := range n.containersInOrder() {
		n.exit(c, lostCode, "Unknown")
	}
	for _, s := range n.sandboxesInOrder() {
		n.sandboxDied(s)
		n.release(s)
	}
}

// Dump returns the node's sandboxes and containers, oldest first, a line each, without ids and times: for scripts to compare.
func (r *Runtime) Dump() string {
	n := r.node
	n.mu.Lock()
	defer n.mu.Unlock()
	var b strings.Builder
	for _, s := range n.sandboxesInOrder() {
		state := "notready"
		if s.ready {
			state = "ready"
		}
		fmt.Fprintf(&b, "%s/%s#%d %s\n", s.pod().Namespace, s.pod().Name, s.config.GetMetadata().GetAttempt(), state)
		for _, c := range n.members(s.id) {
			state := strings.ToLower(strings.TrimPrefix(c.state().String(), "CONTAINER_"))
			fmt.Fprintf(&b, "\t%s#%d %s", c.config.GetMetadata().GetName(), c.config.GetMetadata().GetAttempt(), state)
			if !c.finished.IsZero() {
				fmt.Fprintf(&b, " %d %s", c.exitCode, c.reason)
			}
			b.WriteByte('\n')
		}
	}
	return b.String()
}

// named yields the containers of a name, newest first. The caller holds the lock.
func (n *node) named(name string) func(yield func(*container) bool) {
	return func(yield func(*container) bool) {
		list := n.containersInOrder()
		for i := len(list) - 1; i >= 0; i-- {
			c := list[i]
			own := c.config.GetMetadata().GetName()
			switch name {
			case c.id, own, c.pod.Name + "/" + own, c.pod.Namespace + "/" + c.pod.Name + "/" + own:
				if !yield(c) {
					return
				}
			}
		}
	}
}

// sandboxNamed returns the newest sandbox of a name; nil if there is none. The caller holds the lock.
func (n *node) sandboxNamed(name string) *sandbox {
	list := n.sandboxesInOrder()
	for i := len(list) - 1; i >= 0; i-- {
		s := list[i]
		switch name {
		case s.id, s.pod().Name, s.pod().Namespace + "/" + s.pod().Name:
			return s
		}
	}
	return nil
}
