package scenario

import (
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/berthd/berth/agent/node"
	"github.com/berthd/berth/cri/fake"
)

// A resize that others leave no room for waits until they do, also over a crash; one that does not grow never waits. How much there is is the machine's own.
func TestDeferredResize(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(t, fake.Config{WriteLogs: true})
		n, err := node.New(m.cfg, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		allocatable := n.Allocatable()
		all := allocatable.Memory().Value()
		put := func(name string, percent int64) {
			amount := resource.NewQuantity(all*percent/100, resource.BinarySI)
			text := fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: %s}\nspec: {containers: [{name: %s, image: app, resources: {requests: {memory: %s}}}]}\n", name, name, amount)
			if err := m.manifests.put(name, []byte(text)); err != nil {
				t.Fatal(err)
			}
		}
		want := func(what string, goal func(*machine) error) {
			t.Helper()
			if err := until(2*time.Minute, func() error { return goal(m) }); err != nil {
				t.Fatalf("%s: %v\n%s", what, err, m.story())
			}
		}
		pending := func(name, reason string) func(*machine) error {
			return func(m *machine) error {
				p := m.pod(name)
				if p == nil {
					return fmt.Errorf("there is no pod %s", name)
				}
				have := ""
				for _, c := range p.Status.Conditions {
					if c.Type == "PodResizePending" {
						have = c.Reason
					}
				}
				if have != reason {
					return fmt.Errorf("its resize is pending for %q, want %q", have, reason)
				}
				return nil
			}
		}
		holds := func(name string, percent int64) func(*machine) error {
			return func(m *machine) error {
				p := m.pod(name)
				if p == nil || len(p.Status.ContainerStatuses) == 0 {
					return fmt.Errorf("there is no pod %s", name)
				}
				if have := p.Status.ContainerStatuses[0].AllocatedResources.Memory().Value(); have != all*percent/100 {
					return fmt.Errorf("pod %s was allocated %d bytes of %d", name, have, all)
				}
				return nil
			}
		}
		m.start()
		put("a", 50)
		put("b", 40)
		want("both run", func(m *machine) error { return joined(ready("a", 0)(m), ready("b", 0)(m)) })
		put("b", 70)
		want("b waits", pending("b", "Deferred"))
		want("b keeps what it has", holds("b", 40))
		m.kill()
		m.start()
		want("b waits after a crash", pending("b", "Deferred"))
		put("a", 45)
		want("a shrinks", holds("a", 45))
		want("b waits on", pending("b", "Deferred"))
		put("a", 20)
		want("b has room", func(m *machine) error { return joined(pending("b", "")(m), holds("b", 70)(m), ready("b", 0)(m)) })
		put("a", 60)
		want("a waits", pending("a", "Deferred"))
		m.manifests.remove("b")
		want("a has room", func(m *machine) error { return joined(pending("a", "")(m), holds("a", 60)(m), ready("a", 0)(m)) })
		m.manifests.remove("a")
		m.stop()
	})
}

func joined(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
