package observe

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berthd/berth/cri"
)

func TestEarlyExits(t *testing.T) {
	rt := newStub()
	rt.sandbox("u", 0)
	c := rt.container("u", "a", 0)
	rt.container("u", "b", 0)
	o := New(rt)
	at := time.Unix(1700000000, 5)
	if first := o.Exited("u-a0", &cri.Exit{Code: 3, At: at}); !first {
		t.Error("not the first news of it")
	}
	look := func() (early bool, states map[string]runtimeapi.ContainerState) {
		t.Helper()
		obs, err := o.Pod(t.Context(), "u")
		if err != nil {
			t.Fatal(err)
		}
		shown, early := o.Early(obs)
		states = map[string]runtimeapi.ContainerState{}
		for _, c := range shown.Containers {
			states[c.Name()] = c.State
			if c.Name() == "a" && early &&
				(c.ExitCode != 3 || c.FinishedAt != at.UnixNano() || c.Reason != "Error" || c.Hash != "abc" ||
					c.Labels[cri.LabelPodUID] != "u") {
				t.Errorf("shown %+v", c)
			}
		}
		if len(obs.Containers) != 2 || obs.Containers[0].State != c.State {
			t.Errorf("the observation itself changed: %+v", obs.Containers[0])
		}
		return early, states
	}
	if early, _ := look(); early {
		t.Error("an exit of a container that had never been observed was kept")
	}
	o.Exited("u-a0", &cri.Exit{Code: 3, At: at})
	early, states := look()
	if !early || states["a"] != runtimeapi.ContainerState_CONTAINER_EXITED ||
		states["b"] != runtimeapi.ContainerState_CONTAINER_RUNNING {
		t.Errorf("early %v, states %v", early, states)
	}
	if first := o.Exited("u-a0", nil); first {
		t.Error("the second news of an exit counts as the first")
	}
	if early, _ := look(); early {
		t.Error("early after the runtime's own news")
	}
	o.Exited("u-a0", &cri.Exit{Code: 3, At: at})
	c.State = runtimeapi.ContainerState_CONTAINER_EXITED
	if early, _ := look(); early {
		t.Error("early although the runtime lists the exit")
	}
	for _, forget := range []func(){
		func() { o.Forget(types.UID("u")) },
		func() {
			clear(rt.containers)
			clear(rt.sandboxes)
			if _, err := o.Relist(t.Context()); err != nil {
				t.Fatal(err)
			}
		},
	} {
		if _, err := o.Pod(t.Context(), "u"); err != nil {
			t.Fatal(err)
		}
		o.Exited("u-a0", &cri.Exit{})
		forget()
		if len(o.exits) > 0 {
			t.Errorf("kept %v of a pod that is gone", o.exits)
		}
	}
}
