//go:build cluster

package cluster

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/berthd/berth/test/env"
)

// faulty is how long a fault lasts.
const faulty = 15 * time.Second

// faultyNode is a node behind a [FaultProxy], with residents that nothing may disturb.
type faultyNode struct {
	c      *Cluster
	a      *env.Agent
	p      *FaultProxy
	w      *Witness
	before map[string]string
	n      int
}

// TestFaultyAPIServer checks that pods run on, whatever the API server answers and however late.
// The node does not send too many requests, and reports everything when it can.
func TestFaultyAPIServer(t *testing.T) {
	t.Parallel()
	c := Start(t, Options{})
	f := &faultyNode{c: c, p: c.FaultProxy(t, env.NodeName)}
	f.a = c.StartNode(t, env.AgentOptions{Flags: []string{"--kubeconfig", f.p.Kubeconfig}})
	c.WaitNodeReady(t)
	account(t, c)
	f.w = c.Witness(t)
	f.a.WriteManifest(t, "s.yaml", staticSleeper("s"))
	c.Apply(t,
		resident("probed", residents["probed"], false)+resident("volumes", residents["volumes"], true)+
			strings.TrimPrefix(takeoverObjects, "\n"))
	f.w.shows(t, "residents", func(pods map[string]*v1.Pod) error {
		return errors.Join(atRest(pods), allReady(pods, 5))
	})
	f.before = identities(t, f.w)

	t.Run("errors", func(t *testing.T) {
		f.during(t, func(*http.Request) Fault { return Fault{Code: http.StatusInternalServerError} }, 20)
	})
	t.Run("too many requests", func(t *testing.T) {
		// There are ten clients, seven of them for watches. Each asks every two seconds, so eight
		// times at most in fifteen seconds.
		f.during(t, func(*http.Request) Fault { return Fault{Code: http.StatusTooManyRequests, RetryAfter: 2} }, 6)
	})
	t.Run("every other request is one too many", func(t *testing.T) {
		var n atomic.Int64
		f.p.Set(func(*http.Request) Fault {
			if n.Add(1)%2 == 0 {
				return Fault{Code: http.StatusTooManyRequests, RetryAfter: 1}
			}
			return Fault{}
		})
		f.comesAndGoes(t)
		f.undisturbed(t)
	})
	t.Run("watches break every second", func(t *testing.T) {
		f.p.Set(func(r *http.Request) Fault {
			if watches(r) {
				return Fault{Cut: time.Second}
			}
			return Fault{}
		})
		f.comesAndGoes(t)
		lists := 0
		for _, r := range f.rate(t, 12) {
			if strings.HasPrefix(r, http.MethodGet+" ") {
				lists++
			}
		}
		if lists > 5 {
			t.Errorf("%d reads of what the watches that broke had told: they go on where they were", lists)
		}
		f.undisturbed(t)
	})
	t.Run("answers are 30 s late", func(t *testing.T) {
		f.p.Set(func(*http.Request) Fault { return Fault{Late: 30 * time.Second} })
		f.comesAndGoes(t)
		if out := c.Kubectl(t, "get", "node", env.NodeName, "-o",
			`jsonpath={.status.conditions[?(@.type=="Ready")].status}`); out != "True" {
			t.Errorf("the node's condition Ready is %q", out)
		}
		f.undisturbed(t)
	})
}

// during lets a fault last while static pods come and go and one pod is bound. n is the highest
// number of requests in a second. Afterwards the node soon reports to the API server what happened.
func (f *faultyNode) during(t *testing.T, fault func(*http.Request) Fault, n int) {
	t.Helper()
	f.p.Set(fault)
	name, bound := fmt.Sprintf("s-during-%d", f.n), fmt.Sprintf("a-during-%d", f.n)
	f.n++
	f.a.WriteManifest(t, name+".yaml", staticSleeper(name))
	f.c.Apply(t, sleeper(bound))
	f.a.WaitReady(t, mirrorOf(name))
	f.rate(t, n)
	f.p.Set(nil)
	defer f.noStampede(t)
	took := f.w.shows(t, "afterwards", func(pods map[string]*v1.Pod) error {
		if m := pods[mirrorOf(name)]; m == nil || !env.Ready(m) {
			return errors.New("the mirror is not ready")
		}
		if !env.Ready(pods[bound]) {
			return errors.New("the bound pod is not ready")
		}
		return nil
	})
	t.Logf("the API server had heard everything %s later", took.Round(10*time.Millisecond))
	f.a.RemoveManifest(t, name+".yaml")
	f.c.Kubectl(t, "delete", "pod", bound, "--timeout=180s")
	f.c.Kubectl(t, "wait", "--for=delete", "pod", mirrorOf(name), "--timeout=180s")
	f.undisturbed(t)
}

// comesAndGoes has a pod come and go while a fault lasts, and ends the fault.
func (f *faultyNode) comesAndGoes(t *testing.T) {
	t.Helper()
	f.c.Apply(t, sleeper("guest"))
	up := f.w.shows(t, "a pod that comes", func(pods map[string]*v1.Pod) error {
		if p := pods["guest"]; p == nil || !env.Ready(p) {
			return errors.New("it is not ready")
		}
		return nil
	})
	f.c.Kubectl(t, "delete", "pod", "guest", "--wait=false")
	down := f.w.shows(t, "a pod that goes", func(pods map[string]*v1.Pod) error {
		if pods["guest"] != nil {
			return errors.New("it is still there")
		}
		return nil
	})
	t.Logf("a pod came in %s and went in %s", up.Round(10*time.Millisecond), down.Round(10*time.Millisecond))
}

// rate lets a fault last, and checks how many requests a second the node sends meanwhile. It
// returns the requests.
func (f *faultyNode) rate(t *testing.T, most int) []string {
	t.Helper()
	f.p.Asked()
	began := time.Now()
	time.Sleep(faulty)
	asked := f.p.Asked()
	seconds := time.Since(began).Seconds()
	counts := map[string]int{}
	for _, r := range asked {
		counts[r]++
	}
	perSecond := float64(len(asked)) / seconds
	t.Logf("%.1f requests a second: %v", perSecond, counts)
	if perSecond > float64(most) {
		t.Errorf("%.1f requests a second, of which most are %v", perSecond, slices.Sorted(maps.Keys(counts)))
	}
	return asked
}

// noStampede checks how much a node with ten pods at most has asked since the end of a fault: one
// read of everything that is watched, the reports, and the end of two pods.
func (f *faultyNode) noStampede(t *testing.T) {
	t.Helper()
	counts := map[string]int{}
	asked := f.p.Asked()
	for _, r := range asked {
		counts[r]++
	}
	t.Logf("%d requests since then", len(asked))
	if len(asked) > 150 {
		t.Errorf("%d requests since the API server answers again: %v", len(asked), counts)
	}
}

// undisturbed checks that nothing has happened to the residents.
func (f *faultyNode) undisturbed(t *testing.T) {
	t.Helper()
	f.p.Set(nil)
	f.w.shows(t, "the residents", func(pods map[string]*v1.Pod) error {
		for name, old := range f.before {
			p := pods[name]
			if p == nil {
				return fmt.Errorf("%s is gone", name)
			}
			if !env.Ready(p) || Identity(p) != old {
				return fmt.Errorf("%s was %s and is %s (%s)", name, old, Identity(p), env.Describe([]v1.Pod{*p}))
			}
		}
		return nil
	})
}
