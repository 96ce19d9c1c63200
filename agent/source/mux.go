package source

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berthd/berth/agent/source/objects"
	"github.com/berthd/berth/internal/pods"
)

// seenFormat is the format of the annotation kubernetes.io/config.seen: RFC 3339 with nine digits.
const seenFormat = "2006-01-02T15:04:05.000000000Z07:00"

// ObjectSink takes the local objects of the sources. *objects.Store is an ObjectSink.
type ObjectSink interface {
	Replace(source string, objs []objects.Object)
}

// MuxDeps are the dependencies of a [Mux].
type MuxDeps struct {
	// Objects gets a snapshot's local objects before Out gets its pods. If Objects is nil, the mux
	// drops them.
	Objects ObjectSink
	// Out gets the desired set after every snapshot. The mux makes one call at a time. Out must not
	// call Set.
	Out func(Update)
	// Now is the clock; nil means time.Now.
	Now func() time.Time
}

// Mux merges the snapshots of several sources into one desired set.
type Mux struct {
	sources []Source
	deps    MuxDeps

	setting sync.Mutex // held for a whole Set, with its calls to Objects and Out

	mu        sync.Mutex
	snapshots map[string]Snapshot
	merged    map[types.UID]merged
	current   Update
}

// merged is a pod as the mux gave it out, and the source's pod from which the mux made it.
type merged struct {
	from   *v1.Pod
	source string
	pod    *v1.Pod
}

// NewMux returns a mux of sources. If two sources want the same pod, the first source in the list
// has it.
func NewMux(sources []Source, deps MuxDeps) *Mux {
	if deps.Now == nil {
		deps.Now = time.Now
	}
	m := &Mux{sources: sources, deps: deps, snapshots: map[string]Snapshot{}, merged: map[types.UID]merged{}}
	m.current = m.merge()
	return m
}

// Run runs the sources until ctx ends, and joins them. A source that gives up does not end the
// others, and its last snapshot stays. If there are no sources, the desired set is empty, and Run
// calls Out with it once.
func (m *Mux) Run(ctx context.Context) error {
	if len(m.sources) == 0 && m.deps.Out != nil {
		m.deps.Out(m.Current())
	}
	errs := make([]error, len(m.sources))
	var running sync.WaitGroup
	for i, source := range m.sources {
		running.Go(func() {
			if err := source.Run(ctx, m.Set); err != nil {
				errs[i] = fmt.Errorf("running the pod source %s: %w", source.Name(), err)
			}
		})
	}
	running.Wait()
	return errors.Join(errs...)
}

// Set takes a source's latest snapshot. A source that is ready stays ready, whatever later
// snapshots say. Run calls Set for the mux's own sources. Set ignores snapshots of other sources.
func (m *Mux) Set(s Snapshot) {
	m.setting.Lock()
	defer m.setting.Unlock()
	if !slices.ContainsFunc(m.sources, func(source Source) bool { return source.Name() == s.Source }) {
		return
	}
	if m.deps.Objects != nil {
		m.deps.Objects.Replace(s.Source, s.Objects)
	}
	m.mu.Lock()
	s.Ready = s.Ready || m.snapshots[s.Source].Ready
	m.snapshots[s.Source] = s
	m.current = m.merge()
	update := m.current
	m.mu.Unlock()
	if m.deps.Out != nil {
		m.deps.Out(update)
	}
}

// Current returns the desired set.
func (m *Mux) Current() Update {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.current
}

// merge computes the desired set. The caller holds mu, or is the constructor.
func (m *Mux) merge() Update {
	u := Update{Pods: map[types.UID]*v1.Pod{}, Ready: map[string]bool{}, AllReady: true}
	next := map[types.UID]merged{}
	names := map[string]string{} // full name of a static pod -> source
	for _, from := range m.sources {
		source := from.Name()
		s := m.snapshots[source]
		u.Ready[source] = s.Ready
		u.AllReady = u.AllReady && s.Ready
		refused := map[types.UID]string{}
		for _, pod := range s.Pods {
			name := fullName(pod.Namespace, pod.Name)
			if other, taken := next[pod.UID]; taken {
				refused[pod.UID] = other.source
				continue
			}
			if source != pods.SourceAPI {
				if other, taken := names[name]; taken {
					refused[pod.UID] = other
					continue
				}
				names[name] = source
			}
			next[pod.UID] = m.annotate(pod, source)
			u.Pods[pod.UID] = next[pod.UID].pod
		}
		u.Results = append(u.Results, refuse(s.Results, refused)...)
	}
	m.merged = next
	return u
}

// annotate returns the pod with its source and the time when it was first seen. An unchanged pod
// keeps its pointer.
func (m *Mux) annotate(pod *v1.Pod, source string) merged {
	old, known := m.merged[pod.UID]
	if known && old.from == pod && old.source == source {
		return old
	}
	seen := m.deps.Now().Format(seenFormat)
	if known {
		seen = old.pod.Annotations[pods.AnnotationSeen]
	}
	out := *pod
	out.Annotations = maps.Clone(pod.Annotations)
	if out.Annotations == nil {
		out.Annotations = map[string]string{}
	}
	out.Annotations[pods.AnnotationSource], out.Annotations[pods.AnnotationSeen] = source, seen
	if known && reflect.DeepEqual(old.pod, &out) {
		return merged{from: pod, source: source, pod: old.pod}
	}
	return merged{from: pod, source: source, pod: &out}
}

// refuse turns the results of pods that an earlier source has into refusals.
func refuse(results []Result, refused map[types.UID]string) []Result {
	if len(refused) == 0 {
		return results
	}
	out := make([]Result, 0, len(results))
	for _, v := range results {
		if source, ok := refused[v.UID]; ok && v.UID != "" {
			v.Accepted, v.UID = false, ""
			v.Message = fmt.Sprintf("duplicate: Pod %s is already in source %s", fullName(v.Namespace, v.Name), source)
		}
		out = append(out, v)
	}
	return out
}
