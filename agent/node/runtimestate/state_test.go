package runtimestate

import (
	"fmt"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Releases are read as runtimes write them; one that says nothing of itself is asked to try.
func TestImageVolumesByRelease(t *testing.T) {
	for _, test := range []struct{ name, version, want string }{
		{"containerd", "v2.1.0", ""},
		{"containerd", "2.4.2", ""},
		{"containerd", "v3.0.0-beta.1", ""},
		{"containerd", "v2.1", ""},
		{"containerd", "v2.0.5", "image volumes need containerd 2.1 or later, and this is v2.0.5"},
		{"containerd", "1.6.20~ds1", "image volumes need containerd 2.1 or later, and this is 1.6.20~ds1"},
		{"containerd", "v1.7.33", "image volumes need containerd 2.1 or later, and this is v1.7.33"},
		{"cri-o", "1.32.1", "image volumes need cri-o 1.33 or later, and this is 1.32.1"},
		{"cri-o", "1.33.0", ""},
		{"containerd", "devel", ""},
		{"containerd", "", ""},
		{"containerd", "2", ""},
		{"other", "0.1", ""},
	} {
		a := &State{}
		a.version.Store(&runtimeapi.VersionResponse{RuntimeName: test.name, RuntimeVersion: test.version})
		if got := a.ImageVolumes(); got != test.want {
			t.Errorf("%s %s: %q, want %q", test.name, test.version, got, test.want)
		}
	}
	if got := (&State{}).ImageVolumes(); got != "" {
		t.Errorf("before the runtime has answered: %q", got)
	}
}

func TestFaults(t *testing.T) {
	got := faultsOf([]*runtimeapi.RuntimeCondition{
		// no reason to keep pods away
		{Type: "ContainerdHasNoDeprecationWarnings", Reason: "ContainerdHasDeprecationWarnings"},
		{Type: "NetworkReady", Reason: "NetworkPluginNotReady", Message: "cni plugin not initialized"},
		{Type: "RuntimeReady", Status: true},
	})
	if want := "[container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady message:cni " +
		"plugin not initialized]"; fmt.Sprint(got) != want {
		t.Errorf("%v, want %s", got, want)
	}
	if got := faultsOf([]*runtimeapi.RuntimeCondition{
		{Type: "RuntimeReady", Status: true}, {Type: "NetworkReady", Status: true},
	}); len(got) != 0 {
		t.Errorf("%v", got)
	}
}

func faultsOf(conditions []*runtimeapi.RuntimeCondition) []string {
	return FaultsOf(&runtimeapi.StatusResponse{Status: &runtimeapi.RuntimeStatus{Conditions: conditions}})
}
