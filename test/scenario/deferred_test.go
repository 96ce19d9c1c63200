package scenario

import (
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/berthd/berth/agent/node"
	"github.com/berthd/berth/cri/fake"
)

// shares are pods that ask for shares of the machine's own memory.
type shares struct {
	*machine
	all int64
}

// newShares makes a machine without an agent.
func newShares(t *testing.T) shares {
	t.Helper()
	m := newMachine(t, fake.Config{WriteLogs: true})
	n, err := node.New(m.cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	allocatable := n.Allocatable()
	return shares{machine: m, all: allocatable.Memory().Value()}
}

// put writes the manifest of a pod that asks for a percentage of the memory.
func (s shares) put(name string, percent int64) {
	s.t.Helper()
	text := fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: %s}\n"+
		"spec: {containers: [{name: c, image: app, resources: {requests: {memory: %d}}}]}\n", name, s.all*percent/100)
	if err := s.manifests.put(name, []byte(text)); err != nil {
		s.t.Fatal(err)
	}
}

// want fails the test if not all of the goals are reached together in time.
func (s shares) want(what string, goals ...func(*machine) error) {
	s.t.Helper()
	err := until(2*time.Minute, func() error {
		for _, goal := range goals {
			if err := goal(s.machine); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		s.t.Fatalf("%s: %v\n%s", what, err, s.history())
	}
}

// pending checks that a pod's resize waits for that reason, or for none.
func pending(name, reason string) func(*machine) error {
	return func(m *machine) error {
		p := m.pod(name)
		if p == nil {
			return fmt.Errorf("there is no pod %s", name)
		}
		have := ""
		for _, c := range p.Status.Conditions {
			if c.Type == v1.PodResizePending {
				have = c.Reason
			}
		}
		if have != reason {
			return fmt.Errorf("its resize is pending for %q, want %q", have, reason)
		}
		return nil
	}
}

// holds checks that a percentage of the memory is allocated to a pod.
func (s shares) holds(name string, percent int64) func(*machine) error {
	return func(m *machine) error {
		p := m.pod(name)
		if p == nil || len(p.Status.ContainerStatuses) == 0 {
			return fmt.Errorf("there is no pod %s", name)
		}
		if have := p.Status.ContainerStatuses[0].AllocatedResources.Memory().Value(); have != s.all*percent/100 {
			return fmt.Errorf("pod %s was allocated %d bytes of %d", name, have, s.all)
		}
		return nil
	}
}

// TestDeferredResize checks that a resize waits until other pods leave enough room, also over a
// crash. A resize that does not grow never waits.
func TestDeferredResize(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShares(t)
		s.start()
		s.put("a", 50)
		s.put("b", 40)
		s.want("both run", ready("a", 0), ready("b", 0))
		s.put("b", 70)
		s.want("b waits", pending("b", v1.PodReasonDeferred))
		s.want("b keeps what it has", s.holds("b", 40))
		s.kill()
		s.start()
		s.want("b waits after a crash", pending("b", v1.PodReasonDeferred))
		s.put("a", 45)
		s.want("a shrinks", s.holds("a", 45))
		s.want("b waits on", pending("b", v1.PodReasonDeferred))
		s.put("a", 20)
		s.want("b has room", pending("b", ""), s.holds("b", 70), ready("b", 0))
		s.put("a", 60)
		s.want("a waits", pending("a", v1.PodReasonDeferred))
		s.manifests.remove("b")
		s.want("a has room", pending("a", ""), s.holds("a", 60), ready("a", 0))
		s.manifests.remove("a")
		s.stop()
	})
}

// TestDeferredResizeBesideMany checks that the next agent counts the resources of all pods from its
// start. No pod is resized into the room of a pod that is not adopted yet.
func TestDeferredResizeBesideMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShares(t)
		s.start()
		run := []func(*machine) error{ready("b", 0)}
		for i := range 25 {
			name := fmt.Sprintf("a%d", i)
			s.put(name, 2)
			run = append(run, ready(name, 0))
		}
		s.put("b", 40)
		s.want("all run", run...)
		s.put("b", 51)
		s.want("b waits", pending("b", v1.PodReasonDeferred))
		for i := range 5 {
			s.kill()
			s.start()
			time.Sleep(10 * time.Second)
			s.want(fmt.Sprintf("b waits after crash %d", i+1), pending("b", v1.PodReasonDeferred))
		}
		s.stop()
	})
}
