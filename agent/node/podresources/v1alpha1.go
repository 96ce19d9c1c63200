package podresources

import (
	"context"

	"k8s.io/kubelet/pkg/apis/podresources/v1alpha1"
)

// alpha serves the first version of the API, which some exporters still ask: it has the devices of
// containers, and nothing else.
type alpha struct {
	v1alpha1.UnimplementedPodResourcesListerServer

	server *Server
}

// List returns which devices each pod's app containers have.
func (a alpha) List(
	context.Context, *v1alpha1.ListPodResourcesRequest,
) (*v1alpha1.ListPodResourcesResponse, error) {
	deps := &a.server.deps
	deps.Metrics.PodResourcesAsked("v1alpha1", "", false)
	out := &v1alpha1.ListPodResourcesResponse{}
	for _, pod := range deps.Pods() {
		of := &v1alpha1.PodResources{Name: pod.Name, Namespace: pod.Namespace}
		for i := range pod.Spec.Containers {
			c := &v1alpha1.ContainerResources{Name: pod.Spec.Containers[i].Name}
			for _, d := range deps.Pieces.Held(pod.UID, c.Name) {
				c.Devices = append(c.Devices, &v1alpha1.ContainerDevices{
					ResourceName: d.GetResourceName(), DeviceIds: d.GetDeviceIds(),
				})
			}
			of.Containers = append(of.Containers, c)
		}
		out.PodResources = append(out.PodResources, of)
	}
	return out, nil
}
