// Package podsapi tells programs of the node which pods it has.
//
// Purpose: the kubelet's pods API (k8s.io/kubelet/pkg/apis/pods, v1alpha1; KEP-4188), on a socket
// in <root>/pods-api, if the feature gate PodsAPI is on. Programs learn the state of the node's
// pods without the API server. Only root may connect.
//
// Truth owned: none. The answers are made from the pods, with their last statuses, at each request.
//
// Concurrency: a [Server] serves any number of requests at a time, with the limits of package
// localrpc. Each watch has a goroutine of its own: a program that does not read holds up nobody,
// and later gets the state of then.
package podsapi

import (
	"cmp"
	"context"
	"crypto/sha256"
	"log/slog"
	"path/filepath"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	podsapi "k8s.io/kubelet/pkg/apis/pods/v1alpha1"

	"github.com/berthd/berth/internal/localrpc"
)

// SocketName is the name of the socket. It is the kubelet's.
const SocketName = "pods-api.sock"

// look is how often a watch looks without a notification: not every change of a pod is one of its
// status.
const look = 5 * time.Second

// Deps are what a server asks.
type Deps struct {
	// Pods returns the node's pods with their statuses, also those that have ended. The caller may
	// not change them.
	Pods func() []*v1.Pod
	// Watch returns a channel that receives after any pod has changed, and a function that ends the
	// watch.
	Watch  func() (changed <-chan struct{}, stop func())
	Logger *slog.Logger
}

// Server serves the API. Make it with [New].
type Server struct {
	podsapi.UnimplementedPodsServer

	dir  string
	deps Deps
}

// New returns a server whose socket is beneath an agent's root directory. It does nothing before
// Run.
func New(root string, deps Deps) *Server { return &Server{dir: Dir(root), deps: deps} }

// Dir returns the directory of the socket beneath an agent's root directory. Its name is the
// kubelet's.
func Dir(root string) string { return filepath.Join(root, "pods-api") }

// Run serves until ctx ends. While the socket cannot be made, it tries again.
func (s *Server) Run(ctx context.Context) error {
	served := localrpc.Server{
		Service: "pods API", Dir: s.dir, Name: SocketName, Logger: s.deps.Logger,
		Register: func(to *grpc.Server) { podsapi.RegisterPodsServer(to, s) },
	}
	return served.Run(ctx)
}

// ListPods returns all pods, by UID.
func (s *Server) ListPods(context.Context, *podsapi.ListPodsRequest) (*podsapi.ListPodsResponse, error) {
	out := &podsapi.ListPodsResponse{}
	for _, pod := range s.pods() {
		data, err := encoded(pod)
		if err != nil {
			return nil, err
		}
		out.Pods = append(out.Pods, data)
	}
	return out, nil
}

// GetPod returns the pod with a UID.
func (s *Server) GetPod(_ context.Context, r *podsapi.GetPodRequest) (*podsapi.GetPodResponse, error) {
	for _, pod := range s.deps.Pods() {
		if string(pod.UID) == r.GetPodUID() {
			data, err := encoded(pod)
			return &podsapi.GetPodResponse{Pod: data}, err
		}
	}
	return nil, status.Errorf(codes.NotFound, "pod with UID %s not found", r.GetPodUID())
}

// WatchPods sends all pods, that these are all, and then each change.
func (s *Server) WatchPods(
	_ *podsapi.WatchPodsRequest, stream grpc.ServerStreamingServer[podsapi.WatchPodsEvent],
) error {
	changed, stop := s.deps.Watch()
	defer stop()
	w := watch{sent: map[types.UID]sent{}, send: stream.Send}
	if err := w.update(s.pods()); err != nil {
		return err
	}
	if err := stream.Send(&podsapi.WatchPodsEvent{Type: podsapi.EventType_INITIAL_SYNC_COMPLETE}); err != nil {
		return err
	}
	again := time.NewTicker(look)
	defer again.Stop()
	for {
		select {
		case <-stream.Context().Done():
			return stream.Context().Err()
		case <-changed:
		case <-again.C:
		}
		if err := w.update(s.pods()); err != nil {
			return err
		}
	}
}

// pods returns all pods, sorted by UID.
func (s *Server) pods() []*v1.Pod {
	list := slices.Clone(s.deps.Pods())
	slices.SortFunc(list, func(a, b *v1.Pod) int { return cmp.Compare(a.UID, b.UID) })
	return list
}

// watch is what the reader of one watch knows.
type watch struct {
	sent map[types.UID]sent
	send func(*podsapi.WatchPodsEvent) error
}

// sent is what the reader knows of one pod: its name, and the sum of what was sent last.
type sent struct {
	namespace, name string
	sum             [sha256.Size]byte
}

// update sends the differences between what the reader knows and the pods.
func (w *watch) update(list []*v1.Pod) error {
	now := map[types.UID]bool{}
	for _, pod := range list {
		now[pod.UID] = true
		data, err := encoded(pod)
		if err != nil {
			return err
		}
		before, known := w.sent[pod.UID]
		is := sent{pod.Namespace, pod.Name, sha256.Sum256(data)}
		if before == is {
			continue
		}
		kind := podsapi.EventType_ADDED
		if known {
			kind = podsapi.EventType_MODIFIED
		}
		if err := w.send(&podsapi.WatchPodsEvent{Type: kind, Pod: data}); err != nil {
			return err
		}
		w.sent[pod.UID] = is
	}
	for uid, was := range w.sent {
		if now[uid] {
			continue
		}
		data, err := encoded(&v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: was.namespace, Name: was.name, UID: uid}})
		if err == nil {
			err = w.send(&podsapi.WatchPodsEvent{Type: podsapi.EventType_DELETED, Pod: data})
		}
		if err != nil {
			return err
		}
		delete(w.sent, uid)
	}
	return nil
}

// encoded returns a pod as protobuf.
func encoded(pod *v1.Pod) ([]byte, error) {
	data, err := pod.Marshal()
	if err != nil {
		return nil, status.Errorf(codes.Internal, "failed to marshal pod: %v", err)
	}
	return data, nil
}
