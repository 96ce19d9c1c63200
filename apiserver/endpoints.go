package apiserver

import (
	"net"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/kubernetes/cmd/kube-apiserver/app"
	"k8s.io/kubernetes/pkg/controlplane/reconcilers"
)

// leaveEndpointsOut has the server keep no endpoints of the Service kubernetes.
func leaveEndpointsOut(config *app.Config) {
	config.KubeAPIs.Extra.EndpointReconcilerConfig.Reconciler = &noEndpoints{
		EndpointReconciler: reconcilers.NewNoneEndpointReconciler(),
	}
}

// noEndpoints is upstream's reconciler that does nothing, but for one answer: upstream takes that a
// start removes endpoints for a sign of a server that crashed, and logs an error.
type noEndpoints struct {
	reconcilers.EndpointReconciler
	stopped atomic.Bool
}

// RemoveEndpoints says that there are none. When the server stops, that is no error.
func (r *noEndpoints) RemoveEndpoints(service string, _ net.IP, _ []corev1.EndpointPort) error {
	if r.stopped.Load() {
		return nil
	}
	return storage.NewKeyNotFoundError(service, 0)
}

// StopReconciling is called before the last RemoveEndpoints.
func (r *noEndpoints) StopReconciling() { r.stopped.Store(true) }
