package pod

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berthd/berth/agent/pod/worker"
	"github.com/berthd/berth/agent/telemetry/metrics"
	"github.com/berthd/berth/internal/pods"
)

// Count counts the pods that have a worker, or wait for one, by their classes.
func Count(entries map[types.UID]worker.Entry) map[metrics.PodKind]int {
	lifecycles := map[worker.Phase]string{
		worker.Running: "sync", worker.Terminating: "terminating", worker.Terminated: "terminated",
	}
	out := map[metrics.PodKind]int{}
	for _, e := range entries {
		ended := e.Pod.Status.Phase == v1.PodSucceeded || e.Pod.Status.Phase == v1.PodFailed
		out[metrics.PodKind{
			Lifecycle: lifecycles[e.Phase], Wanted: !e.Unwanted || e.Again, Static: !pods.FromAPI(e.Pod),
			Active: e.Phase != worker.Terminated && !ended,
		}]++
	}
	return out
}
