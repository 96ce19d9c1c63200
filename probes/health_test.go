package probes

import (
	"encoding/json"
	"testing"

	v1 "k8s.io/api/core/v1"
)

// probeOnce has thresholds of 1: the first outcome decides.
func probeOnce() *v1.Probe { return &v1.Probe{SuccessThreshold: 1, FailureThreshold: 1} }

func TestHealth(t *testing.T) {
	all := v1.Container{StartupProbe: probeOnce(), LivenessProbe: probeOnce(), ReadinessProbe: probeOnce()}
	type step struct {
		kind Kind
		ok   bool
	}
	tests := []struct {
		name        string
		container   v1.Container
		finite      bool
		terminating bool
		steps       []step
		want        Result
		wants       []Kind
	}{
		{
			name: "no probes: started and ready as soon as it runs",
			want: Result{Started: true, Ready: true},
		},
		{
			name: "an init container that is to end is never ready", finite: true, container: all,
			want: Result{Started: true},
		},
		{
			name: "everything waits for startup", container: all,
			want:  Result{},
			wants: []Kind{Startup},
		},
		{
			name: "after startup the others run", container: all, steps: []step{{Startup, true}},
			want:  Result{Started: true},
			wants: []Kind{Readiness, Liveness},
		},
		{
			name:      "startup alone makes ready",
			container: v1.Container{StartupProbe: probeOnce()},
			steps:     []step{{Startup, true}},
			want:      Result{Started: true, Ready: true},
		},
		{
			name:      "failed startup is final and holds everything",
			container: all,
			steps:     []step{{Startup, false}, {Startup, true}},
			want:      Result{Failed: Startup, Message: "Startup false"},
		},
		{
			name: "failed liveness is final, readiness goes on", container: all,
			steps: []step{{Startup, true}, {Readiness, true}, {Liveness, false}, {Liveness, true}},
			want:  Result{Started: true, Ready: true, Failed: Liveness, Message: "Liveness false"},
			wants: []Kind{Readiness},
		},
		{
			name: "readiness failure condemns nobody", container: all,
			steps: []step{{Startup, true}, {Readiness, true}, {Readiness, false}},
			want:  Result{Started: true},
			wants: []Kind{Readiness, Liveness},
		},
		{
			name: "terminating: readiness only", container: all, terminating: true, steps: []step{{Startup, true}},
			want:  Result{Started: true},
			wants: []Kind{Readiness},
		},
		{
			name: "terminating before started: nothing runs, nothing failed", container: all, terminating: true,
		},
		{
			name: "terminating after liveness failed: quiet", container: all, terminating: true,
			steps: []step{{Startup, true}, {Liveness, false}},
			want:  Result{Started: true},
			wants: []Kind{Readiness},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h := newHealth(&tt.container, "id", tt.finite)
			h.terminating = tt.terminating
			for _, s := range tt.steps {
				message := ""
				if !s.ok {
					message = string(s.kind) + " false"
				}
				h.observe(s.kind, s.ok, message)
			}
			tt.want.ContainerID = "id"
			if got := h.result(); got != tt.want {
				t.Errorf("result %+v, want %+v", got, tt.want)
			}
			var wants []Kind
			for _, kind := range kinds {
				if h.wants(kind) {
					wants = append(wants, kind)
				}
			}
			if len(wants) != len(tt.wants) {
				t.Fatalf("wants %v, want %v", wants, tt.wants)
			}
			for i := range wants {
				if wants[i] != tt.wants[i] {
					t.Errorf("wants %v, want %v", wants, tt.wants)
				}
			}
		})
	}
}

func TestHealthRestore(t *testing.T) {
	all := v1.Container{StartupProbe: probeOnce(), LivenessProbe: probeOnce(), ReadinessProbe: probeOnce()}
	tests := []struct {
		name      string
		container v1.Container
		old, want Result
	}{
		{
			"ready stays ready", all,
			Result{ContainerID: "id", Started: true, Ready: true},
			Result{ContainerID: "id", Started: true, Ready: true},
		},
		{
			"started stays started", all,
			Result{ContainerID: "id", Started: true},
			Result{ContainerID: "id", Started: true},
		},
		{
			"another run starts anew", all,
			Result{ContainerID: "old", Started: true, Ready: true},
			Result{ContainerID: "id"},
		},
		{
			"a final failure stays", all,
			Result{ContainerID: "id", Started: true, Ready: true, Failed: Liveness, Message: "why"},
			Result{ContainerID: "id", Started: true, Ready: true, Failed: Liveness, Message: "why"},
		},
		{
			"failed startup stays failed", all,
			Result{ContainerID: "id", Failed: Startup, Message: "why"},
			Result{ContainerID: "id", Failed: Startup, Message: "why"},
		},
		{
			"a failure of a probe it has not",
			v1.Container{},
			Result{ContainerID: "id", Failed: Liveness},
			Result{ContainerID: "id", Started: true, Ready: true},
		},
		{
			"a failure that cannot be", all,
			Result{ContainerID: "id", Started: true, Ready: true, Failed: Readiness},
			Result{ContainerID: "id", Started: true, Ready: true},
		},
		{"nothing known", all, Result{}, Result{ContainerID: "id"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			data, err := json.Marshal(Snapshot{"c": tt.old})
			if err != nil {
				t.Fatal(err)
			}
			var snapshot Snapshot
			if err := json.Unmarshal(data, &snapshot); err != nil {
				t.Fatal(err)
			}
			h := newHealth(&tt.container, "id", false)
			h.restore(snapshot["c"])
			if got := h.result(); got != tt.want {
				t.Errorf("result %+v, want %+v", got, tt.want)
			}
		})
	}
}
