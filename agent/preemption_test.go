package agent

import (
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	apifake "github.com/berthd/berth/agent/cluster/kube/fake"
	"github.com/berthd/berth/configs"
	"github.com/berthd/berth/cri/fake"
	"github.com/berthd/berth/internal/pods"
)

// A critical pod that has no room takes the place of another pod, which fails with the kubelet's
// words, unless its containers end with 0. It waits until the other has ended.
func TestCriticalPodPreemptsAnother(t *testing.T) {
	t.Run("which ends with 0", func(t *testing.T) { preempts(t, 0, v1.PodSucceeded, "", "") })
	t.Run("which fails", func(t *testing.T) {
		preempts(t, 143, v1.PodFailed, "Preempting", "Preempted in order to admit critical pod")
	})
}

// preempts has a pod preempted whose containers end with a code.
func preempts(t *testing.T, code int32, phase v1.PodPhase, reason, message string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		j := &joined{
			t: t, dir: t.TempDir(), rt: fake.New(fake.Config{WriteLogs: true}), api: apifake.New(), from: staticWeb,
			options: func(cfg *configs.Config) { cfg.Kubelet.MaxPods = 2 },
		}
		j.rt.Script("app", fake.Behavior{Term: fake.Term{After: 20 * time.Second, Code: code}})
		j.start()
		defer j.api.Close()
		defer func() { j.end() }()
		j.bind("plain")
		time.Sleep(5 * time.Second)
		j.bind("another")
		time.Sleep(5 * time.Second)
		if s := j.api.Pod("ns", "another").Status; s.Phase != v1.PodFailed || s.Reason != "OutOfpods" {
			t.Errorf("an ordinary pod without room: %s %s", s.Phase, s.Reason)
		}
		needed := func(p *v1.Pod) { p.Spec.Priority = ptr.To(pods.Critical) }
		j.bind("needed", needed)
		time.Sleep(15 * time.Second)
		j.wantRuns("while the other leaves", "web-node Running, another Failed, needed Pending, plain Running")
		time.Sleep(10 * time.Second)
		j.wantRuns("afterwards", "web-node Running, another Failed, needed Running, plain "+string(phase))
		s := j.api.Pod("ns", "plain").Status
		if s.Reason != reason || s.Message != message {
			t.Errorf("%s %q", s.Reason, s.Message)
		}
		wantDisrupted(t, &s, "Pod was preempted by Kubelet to accommodate a critical pod.")
		told := 0
		for _, e := range j.Events() {
			if e.Reason == "Preempting" && e.InvolvedObject.Name == "plain" && e.Type == v1.EventTypeWarning {
				told++
			}
		}
		if told != 1 {
			t.Errorf("%d events about it", told)
		}

		j.bind("needed-too", needed)
		time.Sleep(5 * time.Second)
		if s := j.api.Pod("ns", "needed-too").Status; s.Phase != v1.PodFailed || s.Reason != "UnexpectedAdmissionError" {
			t.Errorf("a critical pod beside others: %s %s", s.Phase, s.Reason)
		}
	})
}
