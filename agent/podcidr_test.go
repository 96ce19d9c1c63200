package agent

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/containerd/errdefs"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	apifake "github.com/berthd/berth/agent/cluster/kube/fake"
	"github.com/berthd/berth/configs"
	"github.com/berthd/berth/cri/fake"
)

// cidrs returns the ranges that the runtime was given, in order.
func cidrs(rt *fake.Runtime) string {
	var out []string
	for _, call := range rt.Calls("UpdateRuntimeConfig") {
		if r, ok := call.Request.(*runtimeapi.UpdateRuntimeConfigRequest); ok {
			out = append(out, r.GetRuntimeConfig().GetNetworkConfig().GetPodCidr())
		}
	}
	return strings.Join(out, " ")
}

func TestRuntimeGetsThePodCIDR(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := &joined{
			t:    t,
			dir:  t.TempDir(),
			rt:   fake.New(fake.Config{WriteLogs: true}),
			api:  apifake.New(),
			from: manifest(""),
		}
		defer j.api.Close()
		j.options = func(cfg *configs.Config) { cfg.Kubelet.PodCIDR = "10.1.0.0/24" }
		j.start()
		defer func() { j.end() }()
		want := func(what, want string) {
			t.Helper()
			time.Sleep(time.Minute)
			if got := cidrs(j.rt); got != want {
				t.Errorf("%s: it got %q, want %q", what, got, want)
			}
		}
		want("of the config", "10.1.0.0/24")
		give := func(cidrs ...string) {
			node := j.api.Get(apifake.Nodes, "", "node").(*v1.Node)
			if node.Spec.PodCIDRs = cidrs; len(cidrs) > 0 {
				node.Spec.PodCIDR = cidrs[0]
			}
			j.api.Put(apifake.Nodes, node)
		}
		give("10.2.0.0/24", "fd00::/64")
		want("of the Node", "10.1.0.0/24 10.2.0.0/24,fd00::/64")
		fail := j.rt.Inject(fake.Fault{Method: "UpdateRuntimeConfig", Err: errors.New("no")})
		give("10.3.0.0/24")
		time.Sleep(time.Minute)
		fail()
		time.Sleep(time.Minute)
		if got := cidrs(j.rt); !strings.HasSuffix(got, " 10.3.0.0/24") || strings.Count(got, "10.3.0.0/24") < 3 ||
			strings.Count(got, "10.3.0.0/24") > 20 {
			t.Errorf("a runtime that failed: it got %q", got)
		}
	})
}

// A runtime that takes no range is asked once. The runtime of a node without a range is never
// asked.
func TestRuntimeThatTakesNoPodCIDR(t *testing.T) {
	for configured, want := range map[string]string{"": "", "10.1.0.0/24": "10.1.0.0/24"} {
		synctest.Test(t, func(t *testing.T) {
			rt := fake.New(fake.Config{WriteLogs: true})
			rt.Inject(fake.Fault{Method: "UpdateRuntimeConfig", Err: errdefs.ErrNotImplemented})
			_, end := liveWith(t, t.TempDir(), rt, staticWeb, Deps{}, func(cfg *configs.Config) {
				cfg.Kubelet.PodCIDR = configured
			})
			defer end()
			time.Sleep(time.Hour)
			if got := cidrs(rt); got != want {
				t.Errorf("configured %q: it got %q", configured, got)
			}
		})
	}
}
