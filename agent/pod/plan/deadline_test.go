package plan

import (
	"math"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestActiveDeadline(t *testing.T) {
	started := &v1.PodStatus{StartTime: &metav1.Time{Time: now.Add(-10 * time.Second)}}
	seconds := func(n int64) *int64 { return &n }
	for _, e := range []struct {
		name    string
		seconds *int64
		status  *v1.PodStatus
		at      time.Time
		passed  bool
	}{
		{"no deadline", nil, started, time.Time{}, false},
		{"no status yet", seconds(1), nil, time.Time{}, false},
		{"not started yet", seconds(1), &v1.PodStatus{}, time.Time{}, false},
		{"still to come", seconds(11), started, now.Add(time.Second), false},
		{"now", seconds(10), started, now, true},
		{"long ago", seconds(1), started, now.Add(-9 * time.Second), true},
		{
			"started by a clock that was put back since", seconds(5),
			&v1.PodStatus{StartTime: &metav1.Time{Time: now.Add(time.Hour)}}, now.Add(5 * time.Second), false,
		},
		{
			"the longest that the API takes", seconds(math.MaxInt32), started,
			now.Add((math.MaxInt32 - 10) * time.Second), false,
		},
	} {
		pod := &v1.Pod{Spec: v1.PodSpec{ActiveDeadlineSeconds: e.seconds}}
		if at, passed := new(Active).Deadline(pod, e.status, now); !at.Equal(e.at) || passed != e.passed {
			t.Errorf("%s: %v %v, want %v %v", e.name, at, passed, e.at, e.passed)
		}
	}
}

// A node's clock that is set while a pod runs neither ends the pod nor gives it more time. The
// deadline uses the monotonic clock, as long as the pod's start is the same.
func TestActiveDeadlineWhenTheClockIsSet(t *testing.T) {
	var active Active
	seconds := int64(60)
	pod := &v1.Pod{Spec: v1.PodSpec{ActiveDeadlineSeconds: &seconds}}
	began := time.Now()
	start := func(at time.Time) *v1.PodStatus { return &v1.PodStatus{StartTime: &metav1.Time{Time: at.Round(0)}} }
	first, _ := active.Deadline(pod, start(began.Add(-10*time.Second)), began)
	if !strings.Contains(first.String(), " m=") || !first.Equal(began.Add(50*time.Second)) {
		t.Errorf("it is %s, 50 s after %s", first, began)
	}
	// the time of a clock that was set; it has no monotonic reading, because a test cannot make one
	// up
	set := began.Add(time.Second).Round(0).Add(time.Hour)
	if at, _ := active.Deadline(pod, start(began.Add(-10*time.Second)), set); !at.Equal(first) {
		t.Errorf("after the clock was set it is %s, and was %s", at, first)
	}
	seconds = 20
	if at, passed := active.Deadline(pod, start(began.Add(-10*time.Second)), began.Add(time.Second)); passed ||
		!at.Equal(began.Add(10*time.Second)) {
		t.Errorf("of a shorter time it is %s, and has passed: %t", at, passed)
	}
	if at, _ := active.Deadline(pod, start(began), began.Add(time.Second)); !at.Equal(began.Add(20 * time.Second)) {
		t.Errorf("of another start it is %s", at)
	}
}
