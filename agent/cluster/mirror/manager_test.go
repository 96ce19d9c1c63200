package mirror

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berthd/berth/internal/pods"
)

// eager is an API server whose watch reports a change before the request is answered.
type eager struct {
	told func(made *v1.Pod)
	made int
}

func (e *eager) Create(_ context.Context, pod *v1.Pod) (*v1.Pod, error) {
	e.made++
	out := pod.DeepCopy()
	out.UID = types.UID(fmt.Sprintf("mirror-%d", e.made))
	e.told(out)
	return out, nil
}

func (*eager) Get(context.Context, string, string) (*v1.Pod, error) { panic("nobody asks") }
func (*eager) Delete(context.Context, string, string, metav1.DeleteOptions) error {
	panic("nothing goes")
}

// What a watch has reported of a mirror, even its deletion, takes precedence over an answer that is
// read later.
func TestAnswersThatComeLate(t *testing.T) {
	for name, tc := range map[string]struct {
		told func(m *Manager, made *v1.Pod)
		made int
	}{
		"nothing is told": {func(*Manager, *v1.Pod) {}, 1},
		"it is told of":   {func(m *Manager, made *v1.Pod) { m.Set(made) }, 1},
		"it is deleted":   {func(m *Manager, made *v1.Pod) { m.Set(made); m.Remove(made) }, 2},
		"another one goes": {
			func(m *Manager, _ *v1.Pod) { m.Remove(&v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "mirror-0"}}) }, 1,
		},
		"it is to go": {func(m *Manager, made *v1.Pod) {
			leaving := made.DeepCopy()
			leaving.DeletionTimestamp = &metav1.Time{Time: time.Now()}
			m.Set(leaving)
			m.Remove(leaving)
		}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				pod := static("web", "h1")
				api := &eager{}
				m := New(Deps{
					API: api, Logger: slog.New(slog.DiscardHandler), Node: func() *v1.Node { return node },
					Static: func() (map[string]*v1.Pod, bool) {
						return map[string]*v1.Pod{pods.FullName(pod): pod}, true
					},
				})
				api.told = func(made *v1.Pod) {
					if api.made == 1 {
						tc.told(m, made)
					}
				}
				m.Replace(nil)
				runAWhile(t, m)
				if have := m.Mirror(pods.FullName(pod)); api.made != tc.made || have == nil ||
					have.UID != types.UID(fmt.Sprintf("mirror-%d", tc.made)) {
					t.Errorf("%d made, the last is %v", api.made, have)
				}
			})
		})
	}
}

// runAWhile runs a manager in virtual time, long enough for many rounds.
func runAWhile(t *testing.T, m *Manager) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- m.Run(ctx) }()
	time.Sleep(10 * time.Minute)
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// taken is an API server that has another pod of the mirror's name, which does not go.
type taken struct {
	pod      *v1.Pod
	requests int
}

func (a *taken) Create(context.Context, *v1.Pod) (*v1.Pod, error) {
	a.requests++
	return nil, apierrors.NewAlreadyExists(v1.Resource("pods"), a.pod.Name)
}

func (a *taken) Get(context.Context, string, string) (*v1.Pod, error) {
	a.requests++
	return a.pod, nil
}

func (a *taken) Delete(context.Context, string, string, metav1.DeleteOptions) error {
	a.requests++
	return nil
}

// runTaken runs a manager for a while with an API server that has a pod of the mirror's name.
func runTaken(t *testing.T, api *taken, have ...*v1.Pod) *Manager {
	t.Helper()
	pod := static("web", "h1")
	m := New(Deps{
		API: api, Logger: slog.New(slog.DiscardHandler), Node: func() *v1.Node { return node },
		Static: func() (map[string]*v1.Pod, bool) { return map[string]*v1.Pod{pods.FullName(pod): pod}, true },
	})
	m.Replace(have)
	runAWhile(t, m)
	return m
}

// Whoever may change pods can keep a mirror from going, with a finalizer. The manager must not ask
// again and again without a pause.
func TestMirrorThatDoesNotGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		leaving := Of(static("web", "h1"), node)
		leaving.UID, leaving.DeletionTimestamp = "mirror-0", &metav1.Time{Time: time.Now()}
		leaving.Finalizers = []string{"example.com/stays"}
		api := &taken{pod: leaving}
		runTaken(t, api, leaving)
		if api.requests < 20 || api.requests > 100 {
			t.Errorf("%d requests in ten minutes", api.requests)
		}
	})
}

// A pod of another node with a mirror's name and annotation is not this node's mirror: no watch
// would ever tell of its end.
func TestMirrorOfAnotherNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		other := Of(static("web", "h1"), node)
		other.UID, other.Spec.NodeName = "other", "another"
		m := runTaken(t, &taken{pod: other})
		if have := m.Mirror("ns/web"); have != nil {
			t.Errorf("the pod of node %s shows the static pod", have.Spec.NodeName)
		}
	})
}
