package agent

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	apifake "github.com/berthd/berth/agent/cluster/kube/fake"
)

// ready returns the status and the message of the node's condition Ready.
func (j *joined) ready() (v1.ConditionStatus, string) {
	for _, c := range j.api.Get(apifake.Nodes, "", "node").(*v1.Node).Status.Conditions {
		if c.Type == v1.NodeReady {
			return c.Status, c.Message
		}
	}
	return "", ""
}

// While the machine shuts down, a new pod of the API server is refused, so that the cluster runs it
// elsewhere. After a cancelled shutdown the node is ready, its static pods run again, and new pods
// run.
func TestShutdownRefusesPodsUntilItIsCancelled(t *testing.T) {
	join(t, staticWeb, func(t *testing.T, j *joined) {
		j.bind("old")
		time.Sleep(5 * time.Second)
		if err := j.drainer.ShutdownInTime(t.Context()); err != nil {
			t.Error(err)
		}
		j.bind("new")
		time.Sleep(5 * time.Second)
		s := j.api.Pod("ns", "new").Status
		if s.Phase != v1.PodFailed || s.Reason != "NodeShutdown" ||
			s.Message != "Pod was rejected: Pod was rejected as the node is shutting down." {
			t.Errorf("a new pod: %s %s %q", s.Phase, s.Reason, s.Message)
		}
		if status, message := j.ready(); status != v1.ConditionFalse || message != "node is shutting down" {
			t.Errorf("the node: %s %q", status, message)
		}
		if err := j.Undrain(); err == nil {
			t.Error("a shutdown was undone as if it were a drain")
		}

		j.drainer.Resume()
		j.bind("later")
		time.Sleep(time.Minute)
		j.wantRuns("after the cancellation", "web-node Running, later Running, new Failed, old Succeeded")
		if status, message := j.ready(); status != v1.ConditionTrue {
			t.Errorf("the node: %s %q", status, message)
		}
	})
}

// A drain outlasts a cancelled shutdown.
func TestDrainOutlastsACancelledShutdown(t *testing.T) {
	join(t, staticWeb, func(t *testing.T, j *joined) {
		time.Sleep(5 * time.Second)
		j.drain(true)
		if err := j.drainer.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
		j.drainer.Resume()
		time.Sleep(time.Minute)
		if state := j.Drained().State; state != "Drained" {
			t.Errorf("the node is %s", state)
		}
		if s := j.Pods()[0].Status; s.Reason != "Drained" || s.ContainerStatuses[0].State.Terminated == nil {
			t.Errorf("the pod is %q, its container %+v", s.Reason, s.ContainerStatuses[0].State)
		}
		if err := j.Undrain(); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Minute)
		j.wantRuns("in the end", "web-node Running")
	})
}

// A static pod that a worker gets while the machine shuts down waits: no other node will run it.
func TestStaticPodWaitsForTheEndOfAShutdown(t *testing.T) {
	join(t, staticWeb, func(t *testing.T, j *joined) {
		time.Sleep(5 * time.Second)
		late := j.Pods()[0].DeepCopy()
		late.UID, late.Name, late.Status = "late", "late-node", v1.PodStatus{}
		if err := j.drainer.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
		j.workers.Set(late)
		time.Sleep(5 * time.Minute)
		for _, p := range j.Pods() {
			if p.Name == "late-node" && p.Status.Phase != v1.PodPending {
				t.Errorf("it is %s: %s", p.Status.Phase, p.Status.Message)
			}
		}
		j.drainer.Resume()
		time.Sleep(time.Minute)
		j.wantRuns("in the end", "web-node Running") // its manifest has only the other one
	})
}
