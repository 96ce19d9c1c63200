package metrics

import (
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// startOf is a start: the pod's total and SLI seconds, and how many pods counted for each.
type startOf struct {
	total, sli, first float64
	totals, slis      uint64
}

func startsOf(t *testing.T, s *Set) (out startOf) {
	t.Helper()
	families, err := s.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			switch f.GetName() {
			case "kubelet_pod_start_total_duration_seconds":
				out.total, out.totals = m.GetHistogram().GetSampleSum(), m.GetHistogram().GetSampleCount()
			case "kubelet_pod_start_sli_duration_seconds":
				out.sli, out.slis = m.GetHistogram().GetSampleSum(), m.GetHistogram().GetSampleCount()
			case "kubelet_first_network_pod_start_sli_duration_seconds":
				out.first = m.GetGauge().GetValue()
			}
		}
	}
	return out
}

func runningSince(at time.Time) v1.ContainerStatus {
	return v1.ContainerStatus{State: v1.ContainerState{
		Running: &v1.ContainerStateRunning{StartedAt: metav1.NewTime(at)},
	}}
}

// The SLI leaves out pulls, once for each moment, and init containers; the total has all. A pod
// counts once.
func TestStarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, pod, created := New("n", "v"), &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "a"}}, time.Now()
		uid := []types.UID{"a"}
		s.PodStarts("a")
		time.Sleep(time.Second)
		queued := time.Now()
		time.Sleep(3 * time.Second)
		s.ImagePulled(uid, queued, 1) // from 1 s to 4 s
		time.Sleep(time.Second)
		s.ImagePulled(uid, queued.Add(time.Second), 1) // from 2 s to 5 s
		s.ImagePulled([]types.UID{"other"}, queued, 1)
		st := &v1.PodStatus{ContainerStatuses: []v1.ContainerStatus{{}}}
		s.PodStatus(pod, st, created)
		if got := startsOf(t, s); got.totals != 0 {
			t.Errorf("a pod of which no container runs counts: %+v", got)
		}
		st.InitContainerStatuses = []v1.ContainerStatus{{State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{
			StartedAt: metav1.NewTime(time.Now()), FinishedAt: metav1.NewTime(time.Now().Add(2 * time.Second)),
		}}}, runningSince(time.Now())}
		time.Sleep(5 * time.Second)
		st.ContainerStatuses[0] = runningSince(time.Now())
		for range 2 {
			s.PodStatus(pod, st, created)
		}
		if got, want := startsOf(t, s), (startOf{total: 10, totals: 1, sli: 4, slis: 1, first: 4}); got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
	})
}

// Pods with volumes of their own do not count for the SLI, and those that ran before the agent
// began, or ended early, do not count at all.
func TestStartsThatDoNotCount(t *testing.T) {
	s := New("n", "v")
	st := &v1.PodStatus{ContainerStatuses: []v1.ContainerStatus{runningSince(time.Now())}}
	pod := func(uid types.UID, source v1.VolumeSource) *v1.Pod {
		return &v1.Pod{
			ObjectMeta: metav1.ObjectMeta{UID: uid},
			Spec:       v1.PodSpec{Volumes: []v1.Volume{{VolumeSource: source}}},
		}
	}
	disk := pod("disk", v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{}})
	early := pod("early", v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}})
	s.PodStarts("disk")
	s.PodStarts("early")
	s.ForgetPod("", "", "early")
	for _, p := range []*v1.Pod{disk, early, pod("old", v1.VolumeSource{})} {
		s.PodStatus(p, st, time.Now())
	}
	if got := startsOf(t, s); got.totals != 1 || got.slis != 0 {
		t.Errorf("%+v", got)
	}
}
