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

	"github.com/berthd/berth/agent/cluster/kube"
	"github.com/berthd/berth/internal/notify"
	"github.com/berthd/berth/internal/pods"
)

// backoff is how long to wait after a mirror that could not be made or removed.
var backoff = kube.Backoff{First: 200 * time.Millisecond, Most: time.Minute}

// safety is how often the manager syncs without a notification. If nothing has to be done, a sync
// makes no request.
const safety = time.Minute

// API is the part of the API server's pods that the manager uses.
type API interface {
	Get(ctx context.Context, namespace, name string) (*v1.Pod, error)
	Create(ctx context.Context, pod *v1.Pod) (*v1.Pod, error)
	Delete(ctx context.Context, namespace, name string, opts metav1.DeleteOptions) error
}

// Deps are the dependencies of a manager.
type Deps struct {
	API API
	// Static returns the node's static pods by full name, and whether all of them are known. Only
	// if all are known, mirrors without a static pod are removed.
	Static func() (pods map[string]*v1.Pod, known bool)
	// Node returns the Node object. nil if there is none, and then no mirror is made.
	Node func() *v1.Node
	// Changed notifies that static pods or the Node changed. nil if nobody else notifies.
	Changed notify.Signal
	Logger  *slog.Logger
}

// Manager keeps the mirrors of the node's static pods. Make it with [New].
type Manager struct {
	deps Deps

	mu      sync.Mutex
	mirrors map[string]*v1.Pod // by full name
	read    bool               // the API server has listed them
	// ended are the mirrors that were reported as deleted during a request; nil while there is no
	// request.
	ended   map[types.UID]bool
	failing map[string]string // the last logged failure of each mirror; only Run uses it
}

// New returns a manager. It does nothing until [Manager.Run].
func New(deps Deps) *Manager {
	if deps.Changed == nil {
		deps.Changed = notify.New()
	}
	return &Manager{deps: deps, mirrors: map[string]*v1.Pod{}, failing: map[string]string{}}
}

// Replace takes all pods of this node that the API server has.
func (m *Manager) Replace(have []*v1.Pod) {
	m.mu.Lock()
	m.read, m.mirrors = true, map[string]*v1.Pod{}
	for _, pod := range have {
		if pods.Mirror(pod) {
			m.mirrors[pods.FullName(pod)] = pod
		}
	}
	m.mu.Unlock()
	m.deps.Changed.Notify()
}

// Set takes a pod that is new or changed.
func (m *Manager) Set(pod *v1.Pod) {
	if !pods.Mirror(pod) {
		return
	}
	m.mu.Lock()
	old := m.mirrors[pods.FullName(pod)]
	m.mirrors[pods.FullName(pod)] = pod
	m.mu.Unlock()
	if old == nil || old.UID != pod.UID || pod.DeletionTimestamp != nil {
		m.deps.Changed.Notify()
	}
}

// Remove takes a pod that was deleted.
func (m *Manager) Remove(pod *v1.Pod) {
	if m.remove(pod) {
		m.deps.Changed.Notify()
	}
}

// remove is Remove without the notification. It reports whether the pod was a mirror.
func (m *Manager) remove(pod *v1.Pod) (gone bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ended != nil {
		m.ended[pod.UID] = true
	}
	old := m.mirrors[pods.FullName(pod)]
	gone = old != nil && old.UID == pod.UID
	if gone {
		delete(m.mirrors, pods.FullName(pod))
	}
	return gone
}

// Mirror returns the mirror of the static pod with that full name. nil if the API server has none,
// or has not been read.
func (m *Manager) Mirror(fullName string) *v1.Pod {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.mirrors[fullName]
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
		case <-m.deps.Changed:
		case <-timer.C:
		}
		timer.Stop()
		if err := m.sync(ctx); err != nil {
			failures++
			timer.Reset(backoff.Delay(failures, err))
		} else {
			failures = 0
			timer.Reset(safety)
		}
	}
}

// change is what to do for one name: remove a mirror, make a mirror, or both.
type change struct {
	remove, create *v1.Pod
}

// changes decides what to do so that every static pod has its mirror and there is no other mirror.
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

// sync makes all changes that are necessary now.
func (m *Manager) sync(ctx context.Context) error {
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
		m.logFailure(ctx, name, err)
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
		if err := m.deps.API.Delete(ctx, c.remove.Namespace, c.remove.Name, *opts); err != nil &&
			!apierrors.IsNotFound(err) {
			m.reread(ctx, c.remove, err)
			return fmt.Errorf("removing the mirror pod: %w", err)
		}
		m.remove(c.remove)
	}
	if c.create == nil {
		return nil
	}
	create := func() (*v1.Pod, error) { return m.deps.API.Create(ctx, c.create) }
	if err := m.ask(c.create.Spec.NodeName, create); err != nil {
		m.reread(ctx, c.create, err)
		return fmt.Errorf("making the mirror pod: %w", err)
	}
	return nil
}

// ask stores the mirror that a request returned, unless the watch reported something newer before
// the answer came, such as the mirror's deletion. A mirror that is leaving may stay for long, if it
// has a finalizer: the manager notifies itself of no such mirror, because notifications end the
// back-off. The watch reports its end. It does not for a pod of another node, which ask ignores.
func (m *Manager) ask(node string, request func() (*v1.Pod, error)) error {
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
	switch heard := m.mirrors[pods.FullName(pod)]; {
	case !pods.Mirror(pod) || pod.Spec.NodeName != node:
	case ended[pod.UID]:
		m.deps.Changed.Notify() // the mirror must be made again
	case heard == nil || heard.UID != pod.UID:
		m.mirrors[pods.FullName(pod)] = pod
		if pod.DeletionTimestamp == nil {
			m.deps.Changed.Notify()
		}
	}
	return nil
}

// reread reads the mirror again after an answer that says that there is another one. The next sync
// acts on the result.
func (m *Manager) reread(ctx context.Context, pod *v1.Pod, err error) {
	if !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) {
		return
	}
	err = m.ask(pod.Spec.NodeName, func() (*v1.Pod, error) { return m.deps.API.Get(ctx, pod.Namespace, pod.Name) })
	if apierrors.IsNotFound(err) {
		m.mu.Lock()
		delete(m.mirrors, pods.FullName(pod))
		m.mu.Unlock()
	}
}

// logFailure logs each kind of failure of a mirror once.
func (m *Manager) logFailure(ctx context.Context, name string, err error) {
	switch {
	case err == nil:
		delete(m.failing, name)
	case ctx.Err() == nil && m.failing[name] != err.Error():
		m.failing[name] = err.Error()
		m.deps.Logger.Warn("a static pod is not shown in the API server; it is tried again", "pod", name, "err", err)
	}
}
