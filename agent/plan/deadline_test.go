package plan

import (
	"math"
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
		{"the longest that the API takes", seconds(math.MaxInt32), started, now.Add((math.MaxInt32 - 10) * time.Second), false},
	} {
		pod := &v1.Pod{Spec: v1.PodSpec{ActiveDeadlineSeconds: e.seconds}}
		if at, passed := ActiveDeadline(pod, e.status, now); !at.Equal(e.at) || passed != e.passed {
			t.Errorf("%s: %v %v, want %v %v", e.name, at, passed, e.at, e.passed)
		}
	}
}
