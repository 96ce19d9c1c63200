package agent

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	apifake "github.com/berthd/berth/agent/cluster/kube/fake"
	"github.com/berthd/berth/agent/pod/worker"
	"github.com/berthd/berth/configs"
	"github.com/berthd/berth/cri/fake"
)

// full makes an agent's node one that has too little disk, whatever the machine has.
func full(cfg *configs.Config) {
	cfg.Kubelet.EvictionHard = map[string]string{"nodefs.available": "99.9999%"}
}

// evictedEvent returns the event about a pod's eviction; nil if there is none.
func evictedEvent(a *Agent, name string) *v1.Event {
	for _, e := range a.Events() {
		if e.Reason == "Evicted" && e.InvolvedObject.Name == name {
			return &e
		}
	}
	return nil
}

const lowOnDisk = "The node was low on resource: ephemeral-storage. Threshold quantity: "

// A node without a cluster evicts its static pods, but not a critical one. Once the node has enough
// again, the pod runs again; so it does with the next agent.
func TestEvictionWithoutCluster(t *testing.T) {
	const pods = manifest(`{apiVersion: v1, kind: Pod, metadata: {name: web}, spec: {containers: [{name: app, image: ` +
		`app}]}}` + "\n---\n" + `{apiVersion: v1, kind: Pod, metadata: {name: needed}, spec: {priorityClassName: ` +
		`system-node-critical, containers: [{name: app, image: app}]}}`)
	synctest.Test(t, func(t *testing.T) {
		dir, rt := t.TempDir(), fake.New(fake.Config{WriteLogs: true})
		a, end := liveWith(t, dir, rt, pods, Deps{}, full)
		defer func() { end() }()
		time.Sleep(time.Minute)
		needed, web := a.Pods()[0], a.Pods()[1]
		if needed.Name != "needed-node" || needed.Status.Phase != v1.PodRunning {
			t.Errorf("the critical pod: %s %s", needed.Name, needed.Status.Phase)
		}
		if web.Status.Phase != v1.PodFailed || web.Status.Reason != "Evicted" ||
			!strings.HasPrefix(web.Status.Message, lowOnDisk) {
			t.Errorf("%s %s %q", web.Status.Phase, web.Status.Reason, web.Status.Message)
		}
		if e := evictedEvent(a, "web-node"); e == nil || e.Type != v1.EventTypeWarning || e.Message != web.Status.Message {
			t.Errorf("event %v", e)
		}
		if s, _ := a.workers.Get(web.UID); s.Stop == nil || s.Stop.Cause != worker.CauseEvicted {
			t.Errorf("stop %+v", s.Stop)
		}
		time.Sleep(time.Hour)
		if got := a.Pods()[1].Status.Phase; got != v1.PodFailed {
			t.Errorf("under pressure it is %s", got)
		}
		end()

		a, end = liveWith(t, dir, rt, pods, Deps{}, nil)
		time.Sleep(time.Minute)
		if got := a.Pods()[1].Status.Phase; got != v1.PodRunning {
			t.Errorf("with enough it is %s", got)
		}
	})
}

// In a cluster, the API server's pods leave and static pods stay. The Node says what it lacks, and
// gets no more pods.
func TestEvictionInCluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := &joined{
			t: t, dir: t.TempDir(), rt: fake.New(fake.Config{WriteLogs: true}), api: apifake.New(), from: staticWeb,
			options: full,
		}
		j.bind("first")
		j.start()
		defer j.api.Close()
		defer func() { j.end() }()
		time.Sleep(time.Minute)
		first := j.api.Pod("ns", "first").Status
		if first.Phase != v1.PodFailed || first.Reason != "Evicted" {
			t.Errorf("%s %s %q", first.Phase, first.Reason, first.Message)
		}
		node := j.api.Get(apifake.Nodes, "", "node").(*v1.Node)
		for _, c := range node.Status.Conditions {
			if want := c.Type == v1.NodeDiskPressure || c.Type == v1.NodeReady; (c.Status == v1.ConditionTrue) != want {
				t.Errorf("condition %s is %s: %s", c.Type, c.Status, c.Reason)
			}
		}
		j.bind("second")
		time.Sleep(time.Minute)
		second := j.api.Pod("ns", "second").Status
		if second.Phase != v1.PodFailed || second.Reason != "Evicted" ||
			second.Message != "Pod was rejected: The node had condition: [DiskPressure]. " {
			t.Errorf("%s %s %q", second.Phase, second.Reason, second.Message)
		}
		for _, p := range j.Pods() {
			if p.Name == "web-node" && p.Status.Phase != v1.PodRunning {
				t.Errorf("the static pod is %s", p.Status.Phase)
			}
		}
	})
}
