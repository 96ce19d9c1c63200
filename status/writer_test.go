package status

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// apiServer has pods and fails on demand.
type apiServer struct {
	t        *testing.T
	w        *Writer
	mu       sync.Mutex
	pods     map[string]*v1.Pod
	revision int
	err      error
	delay    time.Duration
	silent   bool // changes are not reported to the writer
	drops    bool // the message of a status is not kept
	stays    bool // pods have finalizers
	asked    []string
	behind   atomic.Pointer[[]time.Duration] // how long the API server did not have each status
	inFlight map[string]int
}

func (a *apiServer) enter(ctx context.Context, what, name string) error {
	a.mu.Lock()
	a.asked = append(a.asked, what+" "+name)
	if a.inFlight[name]++; a.inFlight[name] > 1 {
		a.t.Errorf("two requests about %s at once", name)
	}
	delay := a.delay
	a.mu.Unlock()
	var err error
	select {
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-time.After(delay):
	}
	a.mu.Lock()
	a.inFlight[name]--
	return errors.Join(err, a.err) // while holding the lock
}

func (a *apiServer) PatchStatus(ctx context.Context, _, name string, patch []byte) (*v1.Pod, error) {
	err := a.enter(ctx, "patch", name)
	defer a.mu.Unlock()
	pod := a.pods[name]
	switch {
	case err != nil:
		return nil, err
	case pod == nil:
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "pods"}, name)
	case !strings.Contains(string(patch), `"uid":"`+string(pod.UID)+`"`):
		return nil, apierrors.NewConflict(schema.GroupResource{Resource: "pods"}, name, errors.New("uid"))
	}
	return a.put(apply(a.t, pod, patch)), nil
}

func (a *apiServer) ConfirmDeletion(ctx context.Context, _, name string, uid types.UID) error {
	err := a.enter(ctx, "delete", name)
	defer a.mu.Unlock()
	if err != nil {
		return err
	}
	if pod := a.pods[name]; pod != nil && pod.UID == uid && a.stays {
		pod = pod.DeepCopy()
		pod.DeletionGracePeriodSeconds = new(int64)
		a.put(pod)
	} else if pod != nil && pod.UID == uid {
		delete(a.pods, name)
		if !a.silent {
			a.w.Remove(pod)
		}
	}
	return nil
}

// put keeps a pod and reports it to the writer. The caller holds a.mu.
func (a *apiServer) put(pod *v1.Pod) *v1.Pod {
	a.revision++
	pod.ResourceVersion = strconv.Itoa(a.revision)
	if a.drops {
		pod.Status.Message = ""
	}
	a.pods[pod.Name] = pod
	if !a.silent {
		a.w.Set(pod)
	}
	return pod
}

// requests waits, and returns the requests since the last call.
func (a *apiServer) requests(after time.Duration) string {
	time.Sleep(after)
	synctest.Wait()
	a.mu.Lock()
	defer a.mu.Unlock()
	out := strings.Join(a.asked, ", ")
	a.asked = nil
	return out
}

func (a *apiServer) change(fn func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	fn()
}

// writing calls fn with a store and an API server, and a writer between them.
func writing(t *testing.T, fn func(t *testing.T, s *Store, a *apiServer)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := NewStore()
		a := &apiServer{t: t, pods: map[string]*v1.Pod{}, inFlight: map[string]int{}}
		a.w = NewWriter(s, WriterDeps{API: a, LocalUID: func(mirror *v1.Pod) types.UID {
			if mirror.Name == "web" {
				return "static-uid"
			}
			return ""
		}, Written: func(_ *v1.Pod, after time.Duration) {
			if have := a.behind.Load(); have != nil {
				*have = append(*have, after) // the writer calls it with its lock
			}
		}, Logger: slog.New(slog.DiscardHandler)})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- a.w.Run(ctx) }()
		fn(t, s, a)
		cancel()
		<-done
	})
}

func podNamed(name string) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID("uid-" + name)},
		Status:     v1.PodStatus{Phase: v1.PodPending},
	}
}

func (a *apiServer) want(what string, after time.Duration, want string) {
	a.t.Helper()
	if got := a.requests(after); got != want {
		a.t.Errorf("%s: asked %q, want %q", what, got, want)
	}
}

var runs = v1.PodStatus{Phase: v1.PodRunning}

func TestWriterWritesAtOnceAndOnce(t *testing.T) {
	writing(t, func(_ *testing.T, s *Store, a *apiServer) {
		pod := podNamed("a")
		a.change(func() { a.put(pod) })
		s.Set(pod, runs)
		a.want("running", 0, "patch a")
		a.want("nothing new", time.Hour, "")
		a.change(func() { // somebody else changes our fields
			other := a.pods["a"].DeepCopy()
			other.Status.Phase = v1.PodPending
			a.put(other)
		})
		a.want("meddled with", 0, "patch a")
	})
}

func TestWriterGathersWhatNobodyWaitsFor(t *testing.T) {
	writing(t, func(_ *testing.T, s *Store, a *apiServer) {
		pod := podNamed("a")
		a.change(func() { a.put(pod) })
		for i := range 5 {
			s.Set(pod, v1.PodStatus{Phase: v1.PodPending, Message: fmt.Sprint(i)})
			a.want("gathering", 10*time.Millisecond, "")
		}
		a.want("gathered", gather, "patch a")
		s.Set(pod, v1.PodStatus{Phase: v1.PodPending, Message: "more"})
		a.want("gathering again", 2*gather, "")
		a.want("apart", apart, "patch a")
		s.Set(pod, v1.PodStatus{Phase: v1.PodPending, Message: "still more"})
		s.Set(pod, runs)
		a.want("urgent", 0, "patch a")
	})
}

func TestWriterTriesAgainUntilItIsWritten(t *testing.T) {
	writing(t, func(t *testing.T, s *Store, a *apiServer) {
		pod := podNamed("a")
		var behind []time.Duration
		a.behind.Store(&behind)
		a.change(func() { a.put(pod); a.err = errors.New("connection refused") })
		s.Set(pod, runs)
		if n := strings.Count(a.requests(5*time.Minute), "patch"); n < 50 || n > 100 {
			t.Errorf("%d requests in 5 min without an answer", n)
		}
		s.Set(pod, v1.PodStatus{Phase: v1.PodSucceeded})
		a.change(func() { a.err = nil })
		if got := a.requests(2 * writeRetry.Most); got != "patch a" || a.pods["a"].Status.Phase != v1.PodSucceeded {
			t.Errorf("asked %q, phase %s", got, a.pods["a"].Status.Phase)
		}
		a.requests(time.Hour) // there is nothing to write
		s.Set(pod, v1.PodStatus{Phase: v1.PodSucceeded, Message: "more"})
		a.requests(time.Minute)
		if len(behind) != 2 || behind[0] < 5*time.Minute || behind[1] > time.Second {
			t.Errorf("the API server was behind for %s", behind)
		}
	})
}

func TestWriterConfirmsADeletionOnlyWhenNothingIsLeft(t *testing.T) {
	writing(t, func(t *testing.T, s *Store, a *apiServer) {
		pod := podNamed("a")
		now := metav1.Now()
		pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = &now, new(int64)
		*pod.DeletionGracePeriodSeconds = 30
		a.change(func() { a.put(pod) })
		s.Set(pod, runs)
		a.want("running", time.Minute, "patch a")
		s.Set(pod, v1.PodStatus{Phase: v1.PodFailed})
		a.want("ended, not cleaned up", time.Minute, "patch a")
		s.End(pod.UID)
		a.want("ended", 0, "delete a")
		a.want("later", time.Hour, "")
	})
}

// The last status is written although nobody waits for it. An API server that does not answer
// delays the end only up to the limit.
func TestWriterFlushes(t *testing.T) {
	for name, c := range map[string]struct {
		delay time.Duration
		err   error
		want  int // how many of the pods are reported to the writer
	}{
		"answers": {want: 3 * parallelWrites},
		"refuses": {err: errors.New("connection refused")},
		"hangs":   {delay: time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := NewStore()
				a := &apiServer{
					t:        t,
					pods:     map[string]*v1.Pod{},
					inFlight: map[string]int{},
					delay:    c.delay,
					err:      c.err,
				}
				a.w = NewWriter(s, WriterDeps{API: a, Logger: slog.New(slog.DiscardHandler)})
				for i := range 3 * parallelWrites {
					pod := podNamed(fmt.Sprint("p", i))
					a.change(func() { a.put(pod) })
					s.Set(pod, v1.PodStatus{Phase: v1.PodPending, Message: "last"})
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				began := time.Now()
				a.w.Flush(ctx)
				told := 0
				for _, pod := range a.pods {
					if pod.Status.Message == "last" {
						told++
					}
				}
				if d := time.Since(began); told != c.want || d > time.Second {
					t.Errorf("%d are told of in %s, want %d", told, d, c.want)
				}
				a.change(func() { a.asked = nil })
				if a.w.Flush(ctx); c.err == nil && c.delay == 0 && len(a.asked) > 0 {
					t.Errorf("asked again: %v", a.asked)
				}
			})
		})
	}
}

// A pod with finalizers stays. Its deletion is confirmed only once.
func TestWriterConfirmsOnce(t *testing.T) {
	writing(t, func(_ *testing.T, s *Store, a *apiServer) {
		pod := podNamed("a")
		now := metav1.Now()
		pod.DeletionTimestamp = &now
		a.change(func() { a.put(pod); a.stays = true })
		s.Set(pod, v1.PodStatus{Phase: v1.PodFailed})
		s.End(pod.UID)
		a.want("ended", time.Hour, "patch a, delete a")
		a.change(func() { a.put(a.pods["a"].DeepCopy()) })
		a.want("told of again", time.Hour, "")
		a.change(func() {
			restored := a.pods["a"].DeepCopy()
			restored.DeletionGracePeriodSeconds = new(int64)
			*restored.DeletionGracePeriodSeconds = 30
			a.put(restored)
		})
		a.want("an older state of it is restored", time.Hour, "delete a")
	})
}

func TestWriterLeavesSuccessorsAlone(t *testing.T) {
	writing(t, func(t *testing.T, s *Store, a *apiServer) {
		old, next := podNamed("a"), podNamed("a")
		next.UID = "uid-next"
		a.change(func() { a.put(old); a.silent = true; a.put(next) })
		s.Set(old, runs)
		a.want("for the old one", time.Second, "patch a")
		if a.pods["a"].Status.Phase != v1.PodPending {
			t.Error("its successor got the status")
		}
		a.w.Remove(old)
		a.w.Set(next)
		a.want("gone", time.Hour, "")
	})
}

func TestWriterWritesStaticPodsToTheirMirrors(t *testing.T) {
	writing(t, func(t *testing.T, s *Store, a *apiServer) {
		mirror := podNamed("web")
		mirror.Annotations = map[string]string{v1.MirrorPodAnnotationKey: "static-uid"}
		static := podNamed("web")
		static.UID = "static-uid"
		s.Set(static, runs)
		a.want("without a mirror", time.Minute, "")
		a.change(func() { a.put(mirror) })
		a.want("with one", time.Second, "patch web")
		now := metav1.Now()
		gone := a.pods["web"].DeepCopy()
		gone.DeletionTimestamp = &now
		s.End(static.UID)
		a.change(func() { a.put(gone) })
		a.want("mirrors are not the writer's to delete", time.Minute, "")
	})
}

// A mirror pod that shows no pod of this node gets no status, whatever UID it names.
func TestWriterWritesNothingToForgedMirrors(t *testing.T) {
	writing(t, func(_ *testing.T, s *Store, a *apiServer) {
		victim, forged := podNamed("a"), podNamed("forged")
		forged.Annotations = map[string]string{v1.MirrorPodAnnotationKey: string(victim.UID)}
		a.change(func() { a.put(victim); a.put(forged) })
		s.Set(victim, runs)
		a.want("running", time.Minute, "patch a")
		a.change(func() { a.w.Remove(forged) })
		s.Set(victim, v1.PodStatus{Phase: v1.PodSucceeded})
		a.want("after the forgery", time.Minute, "patch a")
	})
}

// A status that the API server does not keep is not written again and again.
func TestWriterStopsWhereTheAPIServerDoesNotTakeIt(t *testing.T) {
	writing(t, func(_ *testing.T, s *Store, a *apiServer) {
		pod := podNamed("a")
		a.change(func() { a.put(pod); a.drops = true })
		s.Set(pod, v1.PodStatus{Phase: v1.PodRunning, Message: "m"})
		a.want("dropped", time.Hour, "patch a, patch a")
	})
}

// Many pods are written at the same time. A slow answer delays only its own pod.
func TestWriterWritesSideBySide(t *testing.T) {
	writing(t, func(t *testing.T, s *Store, a *apiServer) {
		a.change(func() { a.delay = 30 * time.Second })
		for i := range 2 * parallelWrites {
			pod := podNamed(fmt.Sprint("p", i))
			a.change(func() { a.put(pod) })
			s.Set(pod, runs)
		}
		if n := strings.Count(a.requests(time.Second), "patch"); n != parallelWrites {
			t.Errorf("%d at once", n)
		}
		for i := range 2 * parallelWrites {
			s.Set(podNamed(fmt.Sprint("p", i)), v1.PodStatus{Phase: v1.PodSucceeded})
		}
		a.requests(10 * time.Minute)
		for name, pod := range a.pods {
			if pod.Status.Phase != v1.PodSucceeded {
				t.Errorf("%s is %s", name, pod.Status.Phase)
			}
		}
	})
}

func TestWriterForgetsWhatTheAPIServerDoesNotHave(t *testing.T) {
	writing(t, func(_ *testing.T, s *Store, a *apiServer) {
		pod := podNamed("a")
		a.change(func() { a.put(pod) })
		a.w.Replace(nil)
		s.Set(pod, runs)
		a.want("not there", time.Hour, "")
	})
}
