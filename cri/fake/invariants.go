package fake

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/berthd/berth/cri"
)

// history is what the fake remembers for [Runtime.CheckInvariants]. The node's lock guards it.
type history struct {
	violations []string
	attempts   map[containerKey]uint32
	restarts   map[containerKey]int
	ended      map[types.UID]bool
}

// containerKey is a container of a pod, in any attempt.
type containerKey struct {
	pod  cri.PodID
	name string
}

func newHistory() history {
	return history{attempts: map[containerKey]uint32{}, restarts: map[containerKey]int{}, ended: map[types.UID]bool{}}
}

// CheckInvariants returns every violation that ever happened, in order, each with its time:
//
//   - Two instances of one container of one pod ran at once, or one pod had two ready sandboxes.
//   - A pod's sandbox started while another pod of the same name and namespace still had a ready
//     sandbox or a running container.
//   - A container had a lower attempt or restart count than before. This is allowed once after its
//     pod has come to its end ([Runtime.Forget]).
func (r *Runtime) CheckInvariants() []string {
	r.node.mu.Lock()
	defer r.node.mu.Unlock()
	return slices.Clone(r.node.violations)
}

// Leftovers returns what the node still holds: sandboxes, containers and addresses, oldest first.
// It must be empty once every pod has been removed.
func (r *Runtime) Leftovers() []string {
	n := r.node
	n.mu.Lock()
	defer n.mu.Unlock()
	var left []string
	for _, s := range n.sandboxesInOrder() {
		left = append(left, fmt.Sprintf("sandbox of %s, %s", s.pod(), s.state()))
	}
	for _, c := range n.containersInOrder() {
		left = append(left, fmt.Sprintf("container %s of %s, %s", c.config.GetMetadata().GetName(), c.pod, c.state()))
	}
	for ip, owner := range n.leases {
		if n.sandboxes[owner] == nil {
			left = append(left, fmt.Sprintf("address %s of a sandbox that is gone", ip))
		}
	}
	return left
}

// Forget records that a pod has come to its end. If the pod comes back, its counts may start again
// from zero, once.
func (r *Runtime) Forget(uid types.UID) {
	r.node.mu.Lock()
	defer r.node.mu.Unlock()
	r.node.ended[uid] = true
}

// begins reports whether a pod has come to its end since its counts were recorded. If so, it drops
// those counts.
func (h *history) begins(uid types.UID) bool {
	if !h.ended[uid] {
		return false
	}
	delete(h.ended, uid)
	maps.DeleteFunc(h.attempts, func(k containerKey, _ uint32) bool { return k.pod.UID == uid })
	maps.DeleteFunc(h.restarts, func(k containerKey, _ int) bool { return k.pod.UID == uid })
	return true
}

func (h *history) violate(format string, args ...any) {
	h.violations = append(h.violations, time.Now().UTC().Format(time.RFC3339Nano)+" "+fmt.Sprintf(format, args...))
}

// sawSandbox checks a sandbox that has just become ready.
func (h *history) sawSandbox(s *sandbox, in store) {
	pod := s.pod()
	for _, other := range in.sandboxes {
		if other == s || !other.ready {
			continue
		}
		switch was := other.pod(); {
		case was == pod:
			h.violate("two sandboxes of pod %s are ready", pod)
		case was.Namespace == pod.Namespace && was.Name == pod.Name:
			h.violate("sandbox of pod %s started while the one of %s is ready", pod, was)
		}
	}
	for _, c := range in.containers {
		if c.running() && c.pod.UID != pod.UID && c.pod.Namespace == pod.Namespace && c.pod.Name == pod.Name {
			h.violate("sandbox of pod %s started while container %s of %s runs", pod, c.config.GetMetadata().GetName(),
				c.pod)
		}
	}
}

// sawStart checks a container that has just become running.
func (h *history) sawStart(c *container, in store) {
	name := c.config.GetMetadata().GetName()
	for _, other := range in.containers {
		if other != c && other.running() && other.pod == c.pod && other.config.GetMetadata().GetName() == name {
			h.violate("two instances of container %s of pod %s run: attempts %d and %d",
				name, c.pod, other.config.GetMetadata().GetAttempt(), c.config.GetMetadata().GetAttempt())
		}
	}
}

// sawCreate checks the counts of a container that has just been created.
func (h *history) sawCreate(c *container) {
	m := c.config.GetMetadata()
	key := containerKey{pod: c.pod, name: m.GetName()}
	if last := h.attempts[key]; m.GetAttempt() < last && !h.begins(c.pod.UID) {
		h.violate("attempt of container %s of pod %s fell from %d to %d", key.name, key.pod, last, m.GetAttempt())
	}
	h.attempts[key] = max(h.attempts[key], m.GetAttempt())
	count, err := strconv.Atoi(c.config.GetAnnotations()[cri.AnnotationRestartCount])
	if err != nil {
		return
	}
	if last := h.restarts[key]; count < last {
		h.violate("restart count of container %s of pod %s fell from %d to %d", key.name, key.pod, last, count)
	}
	h.restarts[key] = max(h.restarts[key], count)
}
