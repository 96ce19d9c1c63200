package mirror

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berthd/berth/agent/cluster"
)

// retry is the back-off after a mirror that could not be made or removed.
var retry = cluster.Backoff{First: 200 * time.Millisecond, Most: time.Minute}

// safety is how often the manager looks although nobody woke it; where nothing is to be done that asks the API server nothing.
const safety = time.Minute

// API is the API server's pods, as the manager changes them.
type API interface {
	Get(ctx context.Context, namespace, name string) (*v1.Pod, error)
	Create(ctx context.Context, pod *v1.Pod) (*v1.Pod, error)
	Delete(ctx context.Context, namespace, name string, opts metav1.DeleteOptions) error
}

// Deps are what a manager needs.
type Deps struct {
	API API
	// Static returns the node's static pods by full name, and whether it is known which those are: only then do mirrors go that none of them has.
	Static func() (pods map[string]*v1.Pod, known bool)
	// Node returns the Node object; nil where there is none, and then no mirror is made.
	Node   func() *v1.Node
	Logger *slog.Logger
}

// Manager keeps the mirrors of the node's static pods. Make it with [New].
type Manager struct {
	deps Deps
	bell chan struct{}

	mu      sync.Mutex
	mirrors map[string]*v1.Pod // by full name
	read    bool               // the API server has said which there are
	// ended are the mirrors that were said to be no more while a request is under way; nil while none is.
	ended   map[types.UID]bool
	failing map[string]string // what was told of each mirror that fails; Run's
}

// New returns a manager; it does nothing until Run.
func New(deps Deps) *Manager {
	return &Manager{deps: deps, bell: make(chan struct{}, 1), mirrors: map[string]*v1.Pod{}, failing: map[string]string{}}
}

func fullName(pod *v1.Pod) string { return pod.Namespace + "/" + pod.Name }

// Replace says which pods of this node the API server has.
func (m *Manager) Replace(pods []*v1.Pod) {
	m.mu.Lock()
	m.read, m.mirrors = true, map[string]*v1.Pod{}
	for _, pod := range pods {
		if isMirror(pod) {
			m.mirrors[fullName(pod)] = pod
		}
	}
	m.mu.Unlock()
	m.Wake()
}

// Set says that the API server has the pod so.
func (m *Manager) Set(pod *v1.Pod) {
	if !isMirror(pod) {
		return
	}
	m.mu.Lock()
	old := m.mirrors[fullName(pod)]
	m.mirrors[fullName(pod)] = pod
	m.mu.Unlock()
	if old == nil || old.UID != pod.UID || pod.DeletionTimestamp != nil {
		m.Wake()
	}
}

// Remove says that the API server has the pod no more.
func (m *Manager) Remove(pod *v1.Pod) {
	m.mu.Lock()
	if m.ended != nil {
		m.ended[pod.UID] = true
	}
	old := m.mirrors[fullName(pod)]
	gone := old != nil && old.UID == pod.UID
	if gone {
		delete(m.mirrors, fullName(pod))
	}
	m.mu.Unlock()
	if gone {
		m.Wake()
	}
}

// Mirror returns the mirror of the static pod of that full name; nil where the API server has none, or has not been read.
func (m *Manager) Mirror(fullName string) *v1.Pod {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.mirrors[fullName]
}

func isMirror(pod *v1.Pod) bool {
	_, ok := pod.Annotations[v1.MirrorPodAnnotationKey]
	return ok
}

// Wake has the manager look: static pods are others now, or the Node is.
func (m *Manager) Wake() {
	select {
	case m.bell <- struct{}{}:
	default:
	}
}

// Run keeps the mirrors until ctx ends.
func (m *Manager) Run(ctx context.Context) error {
	timer := time.NewTimer(0)
	timer.Stop()
	defer timer.Stop()
	failures := 0
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-m.bell:
		case <-timer.C:
		}
		timer.Stop()
		if err := m.look(ctx); err != nil {
			failures++
			timer.Reset(retry.Delay(failures, err))
		} else {
			failures = 0
			timer.Reset(safety)
		}
	}
}

// change is what is to be done: a mirror that goes, and one that is made.
type change struct {
	remove, create *v1.Pod
}

// changes decides what is to be done so that every static pod has its mirror and nothing else has one.
func changes(static, mirrors map[string]*v1.Pod, known bool, node *v1.Node) map[string]change {
	out := map[string]change{}
	for name, pod := range static {
		have := mirrors[name]
		switch {
		case have != nil && Shows(have, pod):
		case have != nil && node == nil:
		case have != nil:
			out[name] = change{remove: have, create: Of(pod, node)}
		case node != nil:
			out[name] = change{create: Of(pod, node)}
		}
	}
	for name, have := range mirrors {
		if _, shown := static[name]; !shown && known {
			out[name] = change{remove: have}
		}
	}
	return out
}

// look does what is to be done now.
func (m *Manager) look(ctx context.Context) error {
	static, known := m.deps.Static()
	m.mu.Lock()
	read, mirrors := m.read, maps.Clone(m.mirrors)
	m.mu.Unlock()
	if !read {
		return nil
	}
	todo := changes(static, mirrors, known, m.deps.Node())
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(todo)) {
		err := m.do(ctx, todo[name])
		m.tell(ctx, name, err)
		errs = append(errs, err)
	}
	for name := range m.failing {
		if _, still := todo[name]; !still {
			delete(m.failing, name)
		}
	}
	return errors.Join(errs...)
}

// do removes one mirror and makes another.
func (m *Manager) do(ctx context.Context, c change) error {
	if c.remove != nil {
		opts := metav1.NewDeleteOptions(0)
		opts.Preconditions = metav1.NewUIDPreconditions(string(c.remove.UID))
		if err := m.deps.API.Delete(ctx, c.remove.Namespace, c.remove.Name, *opts); err != nil && !apierrors.IsNotFound(err) {
			m.reread(ctx, c.remove, err)
			return fmt.Errorf("removing the mirror pod: %w", err)
		}
		m.Remove(c.remove)
	}
	if c.create == nil {
		return nil
	}
	if err := m.ask(func() (*v1.Pod, error) { return m.deps.API.Create(ctx, c.create) }); err != nil {
		m.reread(ctx, c.create, err)
		return fmt.Errorf("making the mirror pod: %w", err)
	}
	return nil
}

// ask notes the mirror that a request returns, unless more was heard of it before the answer was: that counts, be it the mirror's end.
func (m *Manager) ask(request func() (*v1.Pod, error)) error {
	m.mu.Lock()
	m.ended = map[types.UID]bool{}
	m.mu.Unlock()
	pod, err := request()
	m.mu.Lock()
	defer m.mu.Unlock()
	ended := m.ended
	m.ended = nil
	if err != nil {
		return err
	}
	switch heard := m.mirrors[fullName(pod)]; {
	case !isMirror(pod):
	case ended[pod.UID]:
		m.Wake() // another one is needed
	case heard == nil || heard.UID != pod.UID:
		m.mirrors[fullName(pod)] = pod
		m.Wake()
	}
	return nil
}

// reread looks which mirror there is, after an answer that says that it is another one than was thought. What it finds is gone about in the next look.
func (m *Manager) reread(ctx context.Context, pod *v1.Pod, err error) {
	if !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) {
		return
	}
	err = m.ask(func() (*v1.Pod, error) { return m.deps.API.Get(ctx, pod.Namespace, pod.Name) })
	if apierrors.IsNotFound(err) {
		m.mu.Lock()
		delete(m.mirrors, fullName(pod))
		m.mu.Unlock()
	}
}

// tell logs a mirror's trouble once for each kind.
func (m *Manager) tell(ctx context.Context, name string, err error) {
	switch {
	case err == nil:
		delete(m.failing, name)
	case ctx.Err() == nil && m.failing[name] != err.Error():
		m.failing[name] = err.Error()
		m.deps.Logger.Warn("a static pod is not shown in the API server; it is tried again", "pod", name, "err", err)
	}
}
