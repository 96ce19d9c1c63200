package probes

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
)

func TestThreshold(t *testing.T) {
	tests := []struct {
		name             string
		kind             Kind
		success, failure int32
		// outcomes has + for a success and - for a failure. results has the result after each
		// outcome: +, - or ? for undecided.
		outcomes, results string
	}{
		{"readiness fails until the first success", Readiness, 1, 3, "--+", "--+"},
		{"readiness needs its successes in a row", Readiness, 3, 1, "++-+++", "-----+"},
		{"readiness survives failures below the threshold", Readiness, 1, 3, "+--+---", "+++++" + "+-"},
		{"readiness comes back", Readiness, 2, 1, "++-++", "-+--+"},
		{"liveness passes from the beginning", Liveness, 1, 3, "--+--", "+++++"},
		{"liveness fails for good", Liveness, 1, 2, "--+++", "+----"},
		{"liveness failing at once", Liveness, 1, 1, "-+", "--"},
		{"startup is undecided until it succeeds", Startup, 1, 3, "--+", "??+"},
		{"startup fails for good", Startup, 1, 3, "---+", "??--"},
		{"startup succeeds for good", Startup, 1, 1, "+--", "+++"},
		{"defaults are 1 and 3", Readiness, 0, 0, "+---", "+++-"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := newThreshold(tt.kind, &v1.Probe{SuccessThreshold: tt.success, FailureThreshold: tt.failure})
			var got strings.Builder
			for _, o := range tt.outcomes {
				m.observe(o == '+')
				got.WriteString(map[probeResult]string{undecided: "?", passing: "+", failing: "-"}[m.result])
			}
			if got.String() != tt.results {
				t.Errorf("outcomes %s: results %s, want %s", tt.outcomes, got.String(), tt.results)
			}
		})
	}
}

func TestThresholdOfNoProbe(t *testing.T) {
	if m := newThreshold(Liveness, nil); m != nil {
		t.Errorf("threshold of no probe: %+v, want nil", m)
	}
}
