package pod

import (
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berthd/berth/configs"
)

func TestBackoffLimitsOfPods(t *testing.T) {
	seconds := func(n int) metav1.Duration { return metav1.Duration{Duration: time.Duration(n) * time.Second} }
	node := configs.CrashLoopBackOffConfiguration{
		InitialDelay: seconds(10),
		MaxDelay:     seconds(300),
		ResetAfter:   seconds(600),
		PodMinDelay:  seconds(2),
		PodMaxDelay:  seconds(60),
	}
	for name, e := range map[string]struct {
		initial, longest         string // the annotations
		wantInitial, wantLongest time.Duration
		problem                  string
	}{
		"nothing asked":     {wantInitial: 10 * time.Second, wantLongest: 300 * time.Second},
		"within the bounds": {"3s", "50s", 3 * time.Second, 50 * time.Second, ""},
		"below": {
			"1s", "50s", 2 * time.Second, 50 * time.Second, `"1s": the node allows 2s to 1m0s; 2s counts`,
		},
		"negative": {"-5s", "50s", 2 * time.Second, 50 * time.Second, "2s counts"},
		"above": {
			"3s", "10m", 3 * time.Second, 60 * time.Second, `"10m": the node allows 2s to 1m0s; 1m0s counts`,
		},
		"no duration":              {"quick", "", 10 * time.Second, 300 * time.Second, `Invalid value: "quick"`},
		"the first above the last": {"40s", "20s", 20 * time.Second, 20 * time.Second, ""},
	} {
		pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{}}}
		if e.initial != "" {
			pod.Annotations[annotationCrashInitial] = e.initial
		}
		if e.longest != "" {
			pod.Annotations[annotationCrashMax] = e.longest
		}
		got, problems := backoffLimits(node, pod)
		if got.Initial != e.wantInitial || got.Max != e.wantLongest || got.Reset != 600*time.Second {
			t.Errorf("%s: limits %+v", name, got)
		}
		if said := strings.Join(problems, "\n"); (said == "") != (e.problem == "") ||
			!strings.Contains(said, e.problem) {
			t.Errorf("%s: said %q, want %q", name, said, e.problem)
		}
	}
}
