// Package podsource is the source of the pods that an API server has for this node.
//
// Purpose: [Source] follows the node's pods and gives them to the mux, as the sources of manifests
// do with theirs. The status writer and the mirrors need these pods too: they are listeners of the
// source, so that one watch serves all.
//
// Truth owned: the pods of this node as the API server said last. The API server owns them.
//
// Concurrency: [Source.Run] runs once, and calls its listeners from its own goroutine.
package podsource

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berthd/berth/agent/cluster/kube"
	"github.com/berthd/berth/agent/source"
	"github.com/berthd/berth/internal/pods"
)

// Follower reads pods of an API server and reports every change, until ctx ends. A client of
// package kube is a Follower.
type Follower interface {
	Follow(ctx context.Context, namespace, fieldSelector string, h kube.Handler[*v1.Pod])
}

// Deps are the dependencies of a source.
type Deps struct {
	Pods Follower
	// Wait, if set, is closed when pods may be read. They are not read before the node knows its
	// own Node object.
	Wait   <-chan struct{}
	Logger *slog.Logger
	// Seen, if set, get all pods of the node, including mirror pods, before the mux gets them.
	Seen []kube.Handler[*v1.Pod]
}

// Source is the source of the pods that the API server has bound to this node; it is a
// [source.Source]. It omits mirror pods, since these only show static pods.
//
// An API server that cannot be read changes nothing: the source is not ready before its first read,
// and keeps what it read last.
type Source struct {
	node string
	deps Deps
	pods map[types.UID]*v1.Pod // only Run uses it
}

// New returns the source of a node's pods. It does nothing until Run.
func New(node string, deps Deps) *Source {
	return &Source{node: node, deps: deps, pods: map[types.UID]*v1.Pod{}}
}

// Name returns [pods.SourceAPI].
func (a *Source) Name() string { return pods.SourceAPI }

// Run follows the node's pods until ctx ends.
func (a *Source) Run(ctx context.Context, out func(source.Snapshot)) error {
	if a.deps.Wait != nil {
		select {
		case <-ctx.Done():
			return nil
		case <-a.deps.Wait:
		}
	}
	publish := func() { out(a.snapshot()) }
	a.deps.Pods.Follow(ctx, "", "spec.nodeName="+a.node, kube.Handler[*v1.Pod]{
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

// known returns a pod without the parts that nobody here reads. A pod that did not change keeps its
// pointer.
func (a *Source) known(pod *v1.Pod) *v1.Pod {
	if old := a.pods[pod.UID]; old != nil && old.ResourceVersion == pod.ResourceVersion {
		return old
	}
	pod.ManagedFields = nil
	return pod
}

// snapshot returns the pods that the API server wants on this node.
func (a *Source) snapshot() source.Snapshot {
	s := source.Snapshot{Source: pods.SourceAPI, Ready: true}
	for _, pod := range a.pods {
		if !pods.Mirror(pod) {
			s.Pods = append(s.Pods, pod)
		}
	}
	slices.SortFunc(s.Pods, func(x, y *v1.Pod) int { return strings.Compare(string(x.UID), string(y.UID)) })
	return s
}
