package steps

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/containerd/errdefs"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berthd/berth/agent/pod/plan"
	"github.com/berthd/berth/cri"
)

// offline is a runtime whose network is ready or not. made is the error of a new sandbox, and asked
// that of its status.
type offline struct {
	cri.Runtime
	ready       bool
	made, asked error
}

func (r offline) RunPodSandbox(context.Context, *runtimeapi.PodSandboxConfig, string) (string, error) {
	return "id", r.made
}

func (r offline) PodSandboxStatus(context.Context, string) (*runtimeapi.PodSandboxStatus, error) {
	return &runtimeapi.PodSandboxStatus{Id: "id"}, r.asked
}

func (r offline) Status(context.Context, bool) (*runtimeapi.StatusResponse, error) {
	return &runtimeapi.StatusResponse{Status: &runtimeapi.RuntimeStatus{Conditions: []*runtimeapi.RuntimeCondition{
		{Type: runtimeapi.RuntimeReady, Status: true},
		{Type: runtimeapi.NetworkReady, Status: r.ready, Reason: "NoConfig", Message: "no network config found"},
	}}}, nil
}

// TestSandboxEventsOfTheRuntime: an event says whether a sandbox failed because the node's network
// is not ready, and another one that a new sandbox has no status.
func TestSandboxEventsOfTheRuntime(t *testing.T) {
	const (
		failed   = "Warning FailedCreatePodSandBox Failed to create pod sandbox: "
		notReady = "Warning NetworkNotReady network is not ready: NoConfig: no network config found"
	)
	refused := errors.New("failed to setup network")
	for name, test := range map[string]struct {
		runtime offline
		host    bool
		want    string
	}{
		"network not ready":   {runtime: offline{made: refused}, want: notReady},
		"network ready":       {runtime: offline{made: refused, ready: true}, want: failed + refused.Error()},
		"pod on the host's":   {runtime: offline{made: refused}, host: true, want: failed + refused.Error()},
		"runtime unavailable": {runtime: offline{made: errdefs.ErrUnavailable}, want: failed + "unavailable"},
		"no status": {
			runtime: offline{ready: true, asked: errors.New("database damaged")},
			want:    "Warning FailedPodSandBoxStatus Unable to get pod sandbox status: database damaged",
		},
	} {
		t.Run(name, func(t *testing.T) {
			var events eventLog
			s := sandboxOf(test.runtime, &events)
			p := &Sync{
				Given: Given{Pod: &v1.Pod{
					ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "pod", UID: "uid"},
					Spec:       v1.PodSpec{HostNetwork: test.host},
				}},
				Actions: plan.Actions{CreateSandbox: true},
			}
			if _, err := s.Ensure(t.Context(), p); err == nil {
				t.Error("no error")
			}
			if !slices.Equal(events, eventLog{test.want}) {
				t.Errorf("events %q, want %q", events, test.want)
			}
		})
	}
}
