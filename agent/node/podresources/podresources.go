// Package podresources tells programs of the node which container has which devices.
//
// Purpose: the kubelet's pod resources API (k8s.io/kubelet/pkg/apis/podresources, v1), on a socket
// in <root>/pod-resources. Exporters of device metrics and network plugins ask it. Only root may
// connect.
//
// Truth owned: none. The answers are made from the pods and from what the owners of the pieces say,
// at each request.
//
// Concurrency: a [Server] serves any number of requests at a time, but no more of them in a second
// than a kubelet.
package podresources

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/time/rate"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	resourcesapi "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/berthd/berth/internal/pods"
	"github.com/berthd/berth/internal/retry"
)

// The most requests in a second, and at once. Both are the kubelet's.
const (
	perSecond = 100
	atOnce    = 10
)

// socketName is the name of the socket.
const socketName = "kubelet.sock"

// File returns the path of the socket in a server's directory.
func File(dir string) string { return filepath.Join(dir, socketName) }

// listening is how long the server waits after it could not make its socket.
var listening = retry.Backoff{First: time.Second, Most: time.Minute}

// Pieces are what containers have of the node in single pieces.
type Pieces interface {
	// Held returns the devices of a container, Allocatable all healthy devices of the node.
	Held(uid types.UID, container string) []*resourcesapi.ContainerDevices
	Allocatable() []*resourcesapi.ContainerDevices
	// CPUs returns the CPUs that a container has for itself, AllocatableCPUs those that can be had.
	CPUs(uid types.UID, container string) []int64
	AllocatableCPUs() []int64
}

// Metrics counts requests: of the method list, get or get_allocatable.
type Metrics interface {
	PodResourcesAsked(method string, failed bool)
}

// Deps are what a server asks.
type Deps struct {
	// Pods returns the pods that have not ended.
	Pods    func() []*v1.Pod
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
	for failures := 1; ctx.Err() == nil; failures++ {
		if err := s.serve(ctx); ctx.Err() == nil {
			s.deps.Logger.Error("nobody can ask for the resources of pods; this is tried again", "dir", s.dir,
				"in", listening.Delay(failures), "err", err)
			listening.Wait(ctx, failures)
		}
	}
	return nil
}

func (s *Server) serve(ctx context.Context) error {
	if err := os.MkdirAll(s.dir, 0o750); err != nil {
		return fmt.Errorf("making the directory of the pod resources API: %w", err)
	}
	path := File(s.dir)
	if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
		return fmt.Errorf("removing the socket of an earlier run: %w", err)
	}
	listener, err := listen(ctx, path)
	if err != nil {
		return fmt.Errorf("listening for the pod resources API: %w", err)
	}
	defer func() { _ = os.Remove(path) }() // the next run removes it, too
	server := grpc.NewServer(grpc.UnaryInterceptor(limited(rate.NewLimiter(perSecond, atOnce))))
	resourcesapi.RegisterPodResourcesListerServer(server, s)
	defer context.AfterFunc(ctx, server.Stop)()
	if err := server.Serve(listener); err != nil {
		return fmt.Errorf("serving the pod resources API: %w", err)
	}
	return nil
}

// listen makes a socket that only root can connect to. It has its mode before anybody can see it
// under its name.
func listen(ctx context.Context, path string) (net.Listener, error) {
	hidden := path + ".new"
	if err := os.Remove(hidden); err != nil && !os.IsNotExist(err) {
		return nil, err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "unix", hidden)
	if err != nil {
		return nil, err
	}
	if l, ok := listener.(*net.UnixListener); ok {
		l.SetUnlinkOnClose(false) // it has another name then
	}
	if err = os.Chmod(hidden, 0o600); err == nil {
		err = os.Rename(hidden, path)
	}
	if err != nil {
		_ = listener.Close() // the error that matters is the first
		return nil, err
	}
	return listener, nil
}

// limited refuses requests beyond the limit, in the kubelet's words.
func limited(limit *rate.Limiter) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, r any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
		if !limit.Allow() {
			return nil, status.Error(codes.ResourceExhausted, "rejected by rate limit")
		}
		return next(ctx, r)
	}
}

// List returns what each pod has.
func (s *Server) List(
	context.Context, *resourcesapi.ListPodResourcesRequest,
) (*resourcesapi.ListPodResourcesResponse, error) {
	s.deps.Metrics.PodResourcesAsked("list", false)
	out := &resourcesapi.ListPodResourcesResponse{}
	for _, pod := range s.deps.Pods() {
		out.PodResources = append(out.PodResources, s.of(pod))
	}
	return out, nil
}

// Get returns what one pod has.
func (s *Server) Get(
	_ context.Context, r *resourcesapi.GetPodResourcesRequest,
) (*resourcesapi.GetPodResourcesResponse, error) {
	list := s.deps.Pods()
	at := slices.IndexFunc(list, func(pod *v1.Pod) bool {
		return pod.Namespace == r.GetPodNamespace() && pod.Name == r.GetPodName()
	})
	s.deps.Metrics.PodResourcesAsked("get", at < 0)
	if at < 0 {
		return nil, fmt.Errorf("pod %s in namespace %s not found", r.GetPodName(), r.GetPodNamespace())
	}
	return &resourcesapi.GetPodResourcesResponse{PodResources: s.of(list[at])}, nil
}

// GetAllocatableResources returns what the node has for pods, whoever has it now.
func (s *Server) GetAllocatableResources(
	context.Context, *resourcesapi.AllocatableResourcesRequest,
) (*resourcesapi.AllocatableResourcesResponse, error) {
	s.deps.Metrics.PodResourcesAsked("get_allocatable", false)
	return &resourcesapi.AllocatableResourcesResponse{
		Devices: s.deps.Pieces.Allocatable(), CpuIds: s.deps.Pieces.AllocatableCPUs(),
	}, nil
}

// of returns what a pod has: its sidecars and its containers.
func (s *Server) of(pod *v1.Pod) *resourcesapi.PodResources {
	out := &resourcesapi.PodResources{Name: pod.Name, Namespace: pod.Namespace}
	add := func(c *v1.Container) {
		out.Containers = append(out.Containers, &resourcesapi.ContainerResources{
			Name: c.Name, Devices: s.deps.Pieces.Held(pod.UID, c.Name), CpuIds: s.deps.Pieces.CPUs(pod.UID, c.Name),
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
