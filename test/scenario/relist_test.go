package scenario

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berthd/berth/cri/fake"
)

// TestLateListing checks that pods that have gone stay gone, although a listing that is answered
// late still has them.
func TestLateListing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(t, fake.Config{WriteLogs: true})
		m.cfg.Berth.RelistPeriod.Duration = time.Second
		m.start()
		defer m.stop()
		manifest := []byte("apiVersion: v1\nkind: Pod\nmetadata: {name: app}\n" +
			"spec: {containers: [{name: app, image: app}]}\n")
		if err := m.manifests.put("app", manifest); err != nil {
			t.Fatal(err)
		}
		if err := until(time.Minute, func() error { return ready("app", 0)(m) }); err != nil {
			t.Fatal(err)
		}
		late := func(c fake.Call) bool {
			all, ok := c.Request.(*runtimeapi.ListContainersRequest)
			return ok && all.GetFilter() == nil
		}
		begun := len(m.runtime.Calls())
		m.runtime.Inject(fake.Fault{Method: "ListContainers", Match: late, After: true, Delay: time.Minute})
		asked := func() error {
			for _, c := range m.runtime.Calls()[begun:] {
				if late(c) {
					return nil
				}
			}
			return errors.New("not everything is listed")
		}
		if err := until(time.Minute, asked); err != nil {
			t.Fatal(err)
		}
		m.manifests.remove("app")
		gone := func() error {
			if left := m.leftovers(); len(left) > 0 {
				return fmt.Errorf("there is %q", left)
			}
			return nil
		}
		if err := until(50*time.Second, gone); err != nil {
			t.Fatal(err)
		}
		// the delay makes every look at a pod visible
		m.runtime.Inject(fake.Fault{Method: "ListPodSandbox", Delay: time.Second})
		for begin := time.Now(); time.Since(begin) < 2*time.Minute; time.Sleep(100 * time.Millisecond) {
			if err := gone(); err != nil {
				t.Fatalf("after it had gone: %v\n%s", err, m.history())
			}
		}
	})
}
