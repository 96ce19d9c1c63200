package agent

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/containerd/errdefs"
	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/berthd/berth/agent/pod/worker"
	"github.com/berthd/berth/cri/fake"
)

const onePod = manifest(`{apiVersion: v1, kind: Pod, metadata: {name: web}, spec: {terminationGracePeriodSeconds: 30, ` +
	`containers: [{name: app, image: app}]}}`)

// messagesOf returns the messages of the events with a reason about the pod web.
func messagesOf(a *Agent, reason string) []string {
	var out []string
	for _, e := range a.Events() {
		if e.Reason == reason && e.InvolvedObject.Name == "web-node" && e.Type == v1.EventTypeWarning {
			out = append(out, e.Message)
		}
	}
	return slices.Compact(out)
}

// failingCgroups cannot make a pod's cgroup.
type failingCgroups struct{ noCgroups }

func (failingCgroups) EnsurePod(context.Context, *v1.Pod) (string, error) {
	return "", errors.New("no space left on device")
}

func TestMissingCgroupIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, end := liveWith(t, t.TempDir(), fake.New(fake.Config{}), onePod, Deps{Cgroups: failingCgroups{}}, nil)
		defer end()
		time.Sleep(time.Minute)
		const want = "unable to ensure pod container exists: no space left on device"
		if got := messagesOf(a, "FailedCreatePodContainer"); !slices.Equal(got, []string{want}) {
			t.Errorf("%q", got)
		}
	})
}

// A runtime that cannot say what it has of one pod is that pod's trouble. A runtime that does not
// answer at all is the node's, and each pod has no event about it.
func TestUnknownStatusIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := fake.New(fake.Config{})
		a, end := liveWith(t, t.TempDir(), rt, onePod, Deps{}, nil)
		defer end()
		time.Sleep(time.Minute)
		for _, err := range []error{errdefs.ErrUnavailable, errors.New("database damaged")} {
			rt.Inject(fake.Fault{Method: "ListContainers", Err: err})
			a.workers.Wake(a.Pods()[0].UID)
			time.Sleep(10 * time.Second)
			rt.ClearFaults()
			time.Sleep(time.Minute)
			got := slices.ContainsFunc(messagesOf(a, "FailedSync"), func(m string) bool {
				return strings.HasPrefix(m, "error determining status: ") && strings.HasSuffix(m, err.Error())
			})
			if got == errdefs.IsUnavailable(err) {
				t.Errorf("%v: reported %t: %q", err, got, messagesOf(a, "FailedSync"))
			}
		}
	})
}

// A pod that has to leave the node, and is still there after one and a half times its grace period,
// is reported once.
func TestPodThatDoesNotLeaveIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := fake.New(fake.Config{})
		a, end := liveWith(t, t.TempDir(), rt, onePod, Deps{}, nil)
		defer end()
		time.Sleep(time.Minute)
		uid := a.Pods()[0].UID
		rt.Inject(fake.Fault{Method: "StopContainer", Hang: true})
		a.workers.Stop(uid, worker.Stop{Cause: worker.CauseEvicted, Reason: "Evicted", Grace: ptr.To(int64(20))})
		time.Sleep(29 * time.Second)
		if got := messagesOf(a, "ExceededGracePeriod"); len(got) > 0 {
			t.Errorf("too early: %q", got)
		}
		time.Sleep(time.Minute)
		count := int32(0)
		for _, e := range a.Events() {
			if e.Reason == "ExceededGracePeriod" {
				count += e.Count
			}
		}
		const want = "Container runtime did not kill the pod within specified grace period."
		if got := messagesOf(a, "ExceededGracePeriod"); !slices.Equal(got, []string{want}) || count != 1 {
			t.Errorf("%d times: %q", count, got)
		}
		rt.ClearFaults()
	})
}

// A pod whose grace is cut short while it stops has the shorter grace from then on.
func TestPodThatIsToLeaveSoonerIsInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := fake.New(fake.Config{})
		a, end := liveWith(t, t.TempDir(), rt, onePod, Deps{}, nil)
		defer end()
		time.Sleep(time.Minute)
		uid := a.Pods()[0].UID
		rt.Inject(fake.Fault{Method: "StopContainer", Hang: true})
		stop := worker.Stop{Cause: worker.CauseOperator, Reason: "Stopped", Grace: ptr.To(int64(60))}
		a.workers.Stop(uid, stop)
		time.Sleep(30 * time.Second)
		stop.Grace = ptr.To(int64(4))
		a.workers.Stop(uid, stop)
		time.Sleep(9 * time.Second)
		if got := messagesOf(a, "ExceededGracePeriod"); len(got) > 0 {
			t.Errorf("too early: %q", got)
		}
		time.Sleep(2 * time.Second)
		if got := messagesOf(a, "ExceededGracePeriod"); len(got) != 1 {
			t.Errorf("not reported: %q", got)
		}
		rt.ClearFaults()
	})
}
