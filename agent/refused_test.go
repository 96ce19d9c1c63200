package agent

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/berthd/berth/agent/server"
	"github.com/berthd/berth/cri/fake"
)

// The agent that refused a pod says who has what the pod wanted, and so does the next agent.
func TestWhoHasThePort(t *testing.T) {
	const pods = manifest(
		`{apiVersion: v1, kind: Pod, metadata: {name: first}, spec: {containers: [{name: c, image: i, ports: [{containerPort: 80, hostPort: 8080}]}]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: second}, spec: {containers: [{name: c, image: i, ports: [{containerPort: 80, hostPort: 8080}]}]}}
`)
	synctest.Test(t, func(t *testing.T) {
		dir, rt := t.TempDir(), fake.New(fake.Config{WriteLogs: true})
		explained := func(a *Agent) string {
			t.Helper()
			refused, runs := "", ""
			for _, p := range a.Pods() {
				timeline, _ := a.Timeline(p.UID)
				if p.Status.Phase == v1.PodFailed {
					refused = server.Explain(p, timeline).Ended
				} else {
					runs = p.Name
				}
			}
			if !strings.Contains(refused, "(TCP port 8080 is taken by pod default/"+runs+"); it is not tried again") {
				t.Errorf("%q, and %s runs", refused, runs)
			}
			return refused
		}
		a, end := live(t, dir, rt, pods)
		time.Sleep(5 * time.Second)
		before := explained(a)
		end()
		a, end = live(t, dir, rt, pods)
		defer end()
		time.Sleep(5 * time.Second)
		if after := explained(a); after != before {
			t.Errorf("before %q, after %q", before, after)
		}
	})
}
