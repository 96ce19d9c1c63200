package pod

import (
	"maps"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berthd/berth/agent/pod/worker"
	"github.com/berthd/berth/agent/telemetry/metrics"
	"github.com/berthd/berth/internal/pods"
)

func TestCount(t *testing.T) {
	of := func(source string, phase v1.PodPhase) *v1.Pod {
		pod := &v1.Pod{Status: v1.PodStatus{Phase: phase}}
		pod.Annotations = map[string]string{pods.AnnotationSource: source}
		return pod
	}
	got := Count(map[types.UID]worker.Entry{
		"a": {Pod: of(pods.SourceFile, v1.PodRunning)}, "b": {Pod: of(pods.SourceFile, v1.PodPending)},
		"c": {Pod: of(pods.SourceAPI, v1.PodRunning), Phase: worker.Terminating, Unwanted: true},
		"d": {Pod: of(pods.SourceAPI, v1.PodSucceeded), Phase: worker.Terminated},
	})
	want := map[metrics.PodKind]int{
		{Lifecycle: "sync", Wanted: true, Static: true, Active: true}: 2,
		{Lifecycle: "terminating", Active: true}:                      1,
		{Lifecycle: "terminated", Wanted: true}:                       1,
	}
	if !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
