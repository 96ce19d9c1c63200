package fake

import (
	"fmt"
	"strings"

	"github.com/containerd/errdefs"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berthd/berth/cri"
)

// Every function in this file that takes a name takes an id, or the name that people use: a
// container is "container", "pod/container" or "namespace/pod/container", and a sandbox is "pod" or
// "namespace/pod". If a name fits several, the newest is used.

// Exit ends a running container with an exit code, as if its process had ended by itself. It fails
// with class NotFound if no container with that name runs.
func (r *Runtime) Exit(name string, code int32) error {
	return r.end(name, code, "")
}

// OOMKill ends a running container as the kernel does when the container has used up its memory.
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

// Container returns the status of the newest container with that name, nil if there is none. It is
// not a call and is not in the journal.
func (r *Runtime) Container(name string) *runtimeapi.ContainerStatus {
	n := r.node
	n.mu.Lock()
	defer n.mu.Unlock()
	for c := range n.named(name) {
		return n.containerStatus(c)
	}
	return nil
}

// Sandbox returns the status of the newest sandbox with that name, nil if there is none. It is not
// a call and is not in the journal.
func (r *Runtime) Sandbox(name string) *runtimeapi.PodSandboxStatus {
	n := r.node
	n.mu.Lock()
	defer n.mu.Unlock()
	if s := n.sandboxNamed(name); s != nil {
		return s.status()
	}
	return nil
}

// Log writes lines to a running container's log, as if the container had printed them. Lines that
// begin with "stderr: " go to stderr.
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

// LoseSandbox makes a sandbox not ready, as when its pause process is killed. The sandbox's
// containers keep running, and it keeps its address until it is stopped.
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

// ForgetSandbox removes a sandbox and its containers without a trace, as when somebody deleted the
// runtime's state or removed the sandbox by hand.
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

// Reboot does to sandboxes and containers what a reboot of the machine does. All are still there,
// none runs, and nobody knows how the containers ended. The connections go on; [Runtime.Sever] ends
// one.
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

// Dump returns the node's sandboxes and containers, oldest first, with one line for each. The lines
// have no ids and no times, so that scripts can compare them.
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

// named yields the containers with a name, newest first. The caller holds the lock.
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

// sandboxNamed returns the newest sandbox with a name, nil if there is none. The caller holds the
// lock.
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
