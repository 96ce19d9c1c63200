package watched

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/berthd/berth/agent/source/objects"
)

// server is an API server in memory that can fail.
type server struct {
	mu      sync.Mutex
	version int
	objects map[objects.Key]objects.Object
	watches map[*stream]bool
	calls   []string
	// fail is called before each call, with its name and the key. The call fails with the error
	// that it returns.
	fail func(verb string, key objects.Key) error
}

// stream is a watch of a key.
type stream struct {
	server *server
	key    objects.Key
	ch     chan watch.Event
	once   sync.Once
}

func (s *stream) ResultChan() <-chan watch.Event { return s.ch }

func (s *stream) Stop() {
	s.server.mu.Lock()
	defer s.server.mu.Unlock()
	s.end()
}

// end closes the stream. The caller holds the server's mutex.
func (s *stream) end() {
	s.once.Do(func() { close(s.ch) })
	delete(s.server.watches, s)
}

func newServer() *server {
	return &server{version: 100, objects: map[objects.Key]objects.Object{}, watches: map[*stream]bool{}}
}

func (s *server) call(verb string, key objects.Key) error {
	s.calls = append(s.calls, verb+" "+describe(key))
	if s.fail != nil {
		return s.fail(verb, key)
	}
	return nil
}

func matches(key objects.Key, o objects.Object) bool {
	if key.Name != "" && key.Name != o.GetName() {
		return false
	}
	k := objects.KeyOf(o)
	return k.Kind == key.Kind && (key.Namespace == "" || k.Namespace == key.Namespace)
}

// matching returns the objects of a key. The caller holds the mutex.
func (s *server) matching(key objects.Key) (out []objects.Object) {
	if key.Name != "" {
		if o := s.objects[key]; o != nil {
			out = append(out, o)
		}
		return out
	}
	for _, o := range s.objects {
		if matches(key, o) {
			out = append(out, o)
		}
	}
	return out
}

func (s *server) list(_ context.Context, key objects.Key) ([]objects.Object, string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.call("list", key); err != nil {
		return nil, "", err
	}
	var out []objects.Object
	for _, o := range s.matching(key) {
		out = append(out, o.DeepCopyObject().(objects.Object))
	}
	return out, fmt.Sprint(s.version), nil
}

func (s *server) watch(_ context.Context, key objects.Key, version string) (watch.Interface, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.call("watch", key); err != nil {
		return nil, err
	}
	st := &stream{server: s, key: key, ch: make(chan watch.Event, 100)}
	for _, o := range s.matching(key) { // those that changed since then
		var from, is int
		_, _ = fmt.Sscan(version, &from)
		_, _ = fmt.Sscan(o.GetResourceVersion(), &is)
		if is > from {
			st.ch <- watch.Event{Type: watch.Modified, Object: o.DeepCopyObject()}
		}
	}
	s.watches[st] = true
	return st, nil
}

func (s *server) get(_ context.Context, key objects.Key) (objects.Object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.call("get", key); err != nil {
		return nil, err
	}
	if o := s.objects[key]; o != nil {
		return o.DeepCopyObject().(objects.Object), nil
	}
	return nil, apierrors.NewNotFound(schema.GroupResource{Resource: resource(key.Kind)}, key.Name)
}

// put makes or replaces an object, and sends it to its watches.
func (s *server) put(o objects.Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	kind := watch.Modified
	if s.objects[objects.KeyOf(o)] == nil {
		kind = watch.Added
	}
	s.version++
	o.SetResourceVersion(fmt.Sprint(s.version))
	s.objects[objects.KeyOf(o)] = o
	s.broadcast(watch.Event{Type: kind, Object: o})
}

func (s *server) remove(key objects.Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.objects[key]
	delete(s.objects, key)
	s.version++
	o.SetResourceVersion(fmt.Sprint(s.version))
	s.broadcast(watch.Event{Type: watch.Deleted, Object: o})
}

func (s *server) broadcast(e watch.Event) {
	for st := range s.watches {
		if matches(st.key, e.Object.(objects.Object)) {
			st.ch <- watch.Event{Type: e.Type, Object: e.Object.DeepCopyObject()}
		}
	}
}

// send sends an event to all watches.
func (s *server) send(e watch.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for st := range s.watches {
		st.ch <- e
	}
}

// drop ends all watches. In between, change may change the server's state.
func (s *server) drop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for st := range s.watches {
		st.end()
	}
}

// took returns the calls since its last call.
func (s *server) took() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := s.calls
	s.calls = nil
	return out
}

func (s *server) failing(fail func(verb string, key objects.Key) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail = fail
}

// bench is a watcher on a server, in fake time.
type bench struct {
	*Watcher
	t      *testing.T
	server *server
	mu     sync.Mutex
	woken  []string
}

// run runs a test in fake time, and checks that nothing is left of the watcher.
func run(t *testing.T, test func(*bench)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := &bench{t: t, server: newServer()}
		b.Watcher = newWatcher(b.server, Deps{Wake: func(uid types.UID) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.woken = append(b.woken, string(uid))
		}, NodeLabels: func() map[string]string { return map[string]string{"zone": "a"} }})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- b.Run(ctx) }()
		synctest.Wait()
		test(b)
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if n := len(b.server.watches); n > 0 {
			t.Errorf("%d watches are left", n)
		}
	})
}

// wakes waits until nothing is running any more, and returns who was woken since its last call.
func (b *bench) wakes() string {
	synctest.Wait()
	b.mu.Lock()
	defer b.mu.Unlock()
	out := slices.Compact(slices.Sorted(slices.Values(b.woken)))
	b.woken = nil
	return strings.Join(out, " ")
}

// expect compares the calls since its last call.
func (b *bench) expect(calls ...string) {
	b.t.Helper()
	synctest.Wait()
	got := b.server.took()
	slices.Sort(got)
	slices.Sort(calls)
	if !slices.Equal(got, calls) {
		b.t.Errorf("calls:\n got %q\nwant %q", got, calls)
	}
}

// value returns what a pod reads in a ConfigMap, or the error.
func (b *bench) value(pod *v1.Pod, name string) string {
	synctest.Wait()
	cm, err := b.ConfigMap(pod, name)
	if err != nil {
		return err.Error()
	}
	return cm.Data["k"]
}

// podWith returns a pod of namespace ns that uses ConfigMaps, and no service links.
func podWith(uid string, configMaps ...string) *v1.Pod {
	no := false
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "pod-" + uid, UID: types.UID(uid)},
		Spec:       v1.PodSpec{EnableServiceLinks: &no},
	}
	for _, name := range configMaps {
		pod.Spec.Volumes = append(pod.Spec.Volumes, v1.Volume{Name: name, VolumeSource: v1.VolumeSource{
			ConfigMap: &v1.ConfigMapVolumeSource{LocalObjectReference: v1.LocalObjectReference{Name: name}},
		}})
	}
	return pod
}

func configMap(name, value string) *v1.ConfigMap {
	return &v1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: "u"}, Data: map[string]string{"k": value},
	}
}

const (
	listMaster  = "list service default/kubernetes"
	watchMaster = "watch service default/kubernetes"
)
