package source

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berthd/berth/agent/cluster"
)

// Follower reads pods of an API server and tells of every change, until ctx ends; a client of package cluster is one.
type Follower interface {
	Follow(ctx context.Context, namespace, fieldSelector string, h cluster.Handler[*v1.Pod])
}

// APIDeps are what an API source needs.
type APIDeps struct {
	Pods Follower
	// Wait, where it is set, is closed when pods may be read: not before the node knows what it is in the cluster.
	Wait   <-chan struct{}
	Logger *slog.Logger
	// Seen, where they are set, are told of all pods of the node, mirror pods among them, before the mux is.
	Seen []cluster.Handler[*v1.Pod]
}

// API is the source of the pods that the API server has bound to this node. It is a [Source]. Mirror pods are no pods to run: they only show static ones.
//
// An API server that cannot be read changes nothing: the source is not ready before it has been read once, and keeps what it read last.
type API struct {
	node string
	deps APIDeps
	pods map[types.UID]*v1.Pod // Run's
}

// NewAPI returns the source of a node's pods. It does nothing until Run.
func NewAPI(node string, deps APIDeps) *API {
	return &API{node: node, deps: deps, pods: map[types.UID]*v1.Pod{}}
}

// Name returns NameAPI.
func (a *API) Name() string { return NameAPI }

// Run follows the node's pods until ctx ends.
func (a *API) Run(ctx context.Context, out func(Snapshot)) error {
	if a.deps.Wait != nil {
		select {
		case <-ctx.Done():
			return nil
		case <-a.deps.Wait:
		}
	}
	publish := func() { out(a.snapshot()) }
	a.deps.Pods.Follow(ctx, "", "spec.nodeName="+a.node, cluster.Handler[*v1.Pod]{
		Replace: func(items []*v1.Pod) {
			next := make(map[types.UID]*v1.Pod, len(items))
			for _, pod := range items {
				next[pod.UID] = a.known(pod)
			}
			a.pods = next
			for _, h := range a.deps.Seen {
				h.Replace(slices.Collect(maps.Values(next)))
			}
			publish()
		},
		Set: func(pod *v1.Pod) {
			pod = a.known(pod)
			a.pods[pod.UID] = pod
			for _, h := range a.deps.Seen {
				h.Set(pod)
			}
			publish()
		},
		Remove: func(pod *v1.Pod) {
			delete(a.pods, pod.UID)
			for _, h := range a.deps.Seen {
				h.Remove(pod)
			}
			publish()
		},
		Logger: a.deps.Logger,
	})
	return nil
}

// known returns a pod without what nobody here reads; one that did not change stays the same pointer.
func (a *API) known(pod *v1.Pod) *v1.Pod {
	if old := a.pods[pod.UID]; old != nil && old.ResourceVersion == pod.ResourceVersion {
		return old
	}
	pod.ManagedFields = nil
	return pod
}

// snapshot is what the API server wants of this node.
func (a *API) snapshot() Snapshot {
	s := Snapshot{Source: NameAPI, Ready: true}
	for _, pod := range a.pods {
		if !Mirror(pod) {
			s.Pods = append(s.Pods, pod)
		}
	}
	slices.SortFunc(s.Pods, func(x, y *v1.Pod) int { return strings.Compare(string(x.UID), string(y.UID)) })
	return s
}

// Mirror reports whether a pod of the API server only shows a static pod.
func Mirror(pod *v1.Pod) bool {
	_, ok := pod.Annotations[v1.MirrorPodAnnotationKey]
	return ok
}

// Static reports whether a pod comes from a manifest, a file's or a URL's.
func Static(pod *v1.Pod) bool {
	from := pod.Annotations[AnnotationSource]
	return from == NameFile || from == NameHTTP
}
