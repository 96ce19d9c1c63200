// Package podresources tells programs of the node which container has which devices.
//
// Purpose: the kubelet's pod resources API (k8s.io/kubelet/pkg/apis/podresources, v1 and v1alpha1),
// on a socket in <root>/pod-resources. Exporters of device metrics and network plugins ask it. Only
// root may connect.
//
// Truth owned: none. The answers are made from the pods and from what the owners of the pieces say,
// at each request.
//
// Concurrency: a [Server] serves any number of requests at a time, with the limits of package
// localrpc.
package podresources

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"

	"google.golang.org/grpc"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	resourcesapi "k8s.io/kubelet/pkg/apis/podresources/v1"
	"k8s.io/kubelet/pkg/apis/podresources/v1alpha1"

	"github.com/berthd/berth/internal/localrpc"
	"github.com/berthd/berth/internal/pods"
)

// socketName is the name of the socket.
const socketName = "kubelet.sock"

// File returns the path of the socket in a server's directory.
func File(dir string) string { return filepath.Join(dir, socketName) }

// Pieces are what containers have of the node in single pieces.
type Pieces interface {
	// Held returns the devices of a container, Allocatable all healthy devices of the node.
	Held(uid types.UID, container string) []*resourcesapi.ContainerDevices
	Allocatable() []*resourcesapi.ContainerDevices
	// CPUs returns the CPUs that a container has for itself, AllocatableCPUs those that can be had.
	CPUs(uid types.UID, container string) []int64
	AllocatableCPUs() []int64
	// Memory returns the memory that a container has of certain NUMA nodes, AllocatableMemory what
	// can be had.
	Memory(uid types.UID, container string) []*resourcesapi.ContainerMemory
	AllocatableMemory() []*resourcesapi.ContainerMemory
	// Dynamic returns the resource claims of a pod's container.
	Dynamic(pod *v1.Pod, c *v1.Container) []*resourcesapi.DynamicResource
}

// Metrics counts requests, by the API's version: of the method list, get or get_allocatable. The
// method is empty where a kubelet does not count by it.
type Metrics interface {
	PodResourcesAsked(version, method string, failed bool)
}

// Deps are what a server asks.
type Deps struct {
	// Pods returns the pods that have not ended, Listed also those that have.
	Pods    func() []*v1.Pod
	Listed  func() []*v1.Pod
	Pieces  Pieces
	Metrics Metrics
	Logger  *slog.Logger
}

// Server serves the API. Make it with [New].
type Server struct {
	resourcesapi.UnimplementedPodResourcesListerServer

	dir  string
	deps Deps
}

// New returns a server whose socket is in a directory. It does nothing before Run.
func New(dir string, deps Deps) *Server { return &Server{dir: dir, deps: deps} }

// Run serves until ctx ends. While the socket cannot be made, it tries again.
func (s *Server) Run(ctx context.Context) error {
	served := localrpc.Server{
		Service: "pod resources API", Dir: s.dir, Name: socketName, Logger: s.deps.Logger,
		Register: func(to *grpc.Server) {
			resourcesapi.RegisterPodResourcesListerServer(to, s)
			v1alpha1.RegisterPodResourcesListerServer(to, alpha{server: s})
		},
	}
	return served.Run(ctx)
}

// List returns what each pod has.
func (s *Server) List(
	context.Context, *resourcesapi.ListPodResourcesRequest,
) (*resourcesapi.ListPodResourcesResponse, error) {
	s.deps.Metrics.PodResourcesAsked("v1", "list", false)
	out := &resourcesapi.ListPodResourcesResponse{}
	for _, pod := range s.deps.Pods() {
		out.PodResources = append(out.PodResources, s.of(pod))
	}
	return out, nil
}

// Get returns what one pod has, also a pod that has ended, as with a kubelet. Of two pods of one
// name, the one that has not ended counts.
func (s *Server) Get(
	_ context.Context, r *resourcesapi.GetPodResourcesRequest,
) (*resourcesapi.GetPodResourcesResponse, error) {
	list := slices.Concat(s.deps.Pods(), s.deps.Listed())
	at := slices.IndexFunc(list, func(pod *v1.Pod) bool {
		return pod.Namespace == r.GetPodNamespace() && pod.Name == r.GetPodName()
	})
	s.deps.Metrics.PodResourcesAsked("v1", "get", at < 0)
	if at < 0 {
		return nil, fmt.Errorf("pod %s in namespace %s not found", r.GetPodName(), r.GetPodNamespace())
	}
	return &resourcesapi.GetPodResourcesResponse{PodResources: s.of(list[at])}, nil
}

// GetAllocatableResources returns what the node has for pods, whoever has it now.
func (s *Server) GetAllocatableResources(
	context.Context, *resourcesapi.AllocatableResourcesRequest,
) (*resourcesapi.AllocatableResourcesResponse, error) {
	s.deps.Metrics.PodResourcesAsked("v1", "get_allocatable", false)
	return &resourcesapi.AllocatableResourcesResponse{
		Devices: s.deps.Pieces.Allocatable(), CpuIds: s.deps.Pieces.AllocatableCPUs(),
		Memory: s.deps.Pieces.AllocatableMemory(),
	}, nil
}

// of returns what a pod has: its sidecars and its containers.
func (s *Server) of(pod *v1.Pod) *resourcesapi.PodResources {
	out := &resourcesapi.PodResources{Name: pod.Name, Namespace: pod.Namespace}
	add := func(c *v1.Container) {
		out.Containers = append(out.Containers, &resourcesapi.ContainerResources{
			Name: c.Name, Devices: s.deps.Pieces.Held(pod.UID, c.Name), CpuIds: s.deps.Pieces.CPUs(pod.UID, c.Name),
			Memory: s.deps.Pieces.Memory(pod.UID, c.Name), DynamicResources: s.deps.Pieces.Dynamic(pod, c),
		})
	}
	for i := range pod.Spec.InitContainers {
		if c := &pod.Spec.InitContainers[i]; pods.Sidecar(c) {
			add(c)
		}
	}
	for i := range pod.Spec.Containers {
		add(&pod.Spec.Containers[i])
	}
	return out
}
