package kube_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/berthd/berth/agent/cluster/kube"
	"github.com/berthd/berth/agent/cluster/kube/fake"
)

const protobuf = "application/vnd.kubernetes.protobuf"

// notes is a handler that records its calls.
type notes struct {
	mu   sync.Mutex
	said []string
}

func (n *notes) say(format string, args ...any) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.said = append(n.said, fmt.Sprintf(format, args...))
}

// take waits until nothing is running any more, and returns the notes since the last call.
func (n *notes) take() string {
	synctest.Wait()
	n.mu.Lock()
	defer n.mu.Unlock()
	out := strings.Join(n.said, ", ")
	n.said = nil
	return out
}

func (n *notes) handler() kube.Handler[*v1.Pod] {
	return kube.Handler[*v1.Pod]{
		Replace: func(items []*v1.Pod) {
			var names []string
			for _, p := range items {
				names = append(names, p.Name)
			}
			n.say("replace %v", names)
		},
		Set:    func(p *v1.Pod) { n.say("set %s", p.Name) },
		Remove: func(p *v1.Pod) { n.say("remove %s", p.Name) },
		Failed: func(err error) {
			if err != nil {
				n.say("trouble")
			}
		},
		Logger: slog.New(slog.DiscardHandler),
	}
}

func bound(name, node string) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}, Spec: v1.PodSpec{NodeName: node}}
}

// follow gives fn a server in fake time, and follows the pods on node n.
func follow(t *testing.T, fn func(t *testing.T, s *fake.Server, n *notes)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := fake.New()
		conn := s.Conn(kube.Config{ContentType: protobuf, UserAgent: "test"})
		pods, err := kube.Pods(conn)
		if err != nil {
			t.Fatal(err)
		}
		n := &notes{}
		ctx, cancel := context.WithCancel(t.Context())
		var done sync.WaitGroup
		done.Go(func() { pods.Follow(ctx, "", "spec.nodeName=n", n.handler()) })
		defer s.Close()
		defer conn.CloseConnections()
		defer done.Wait()
		defer cancel()
		fn(t, s, n)
	})
}

func (n *notes) want(t *testing.T, what, want string) {
	t.Helper()
	if got := n.take(); got != want {
		t.Errorf("%s: told %q, want %q", what, got, want)
	}
}

func TestFollowTellsOfWhatIsThereAndOfEveryChange(t *testing.T) {
	follow(t, func(t *testing.T, s *fake.Server, n *notes) {
		n.want(t, "at first", "replace []")
		s.Put(fake.Pods, bound("a", "n"))
		s.Put(fake.Pods, bound("b", "other"))
		n.want(t, "a pod", "set a")
		zero := int64(0)
		s.Delete(fake.Pods, "ns", "a", &zero)
		n.want(t, "deleted", "remove a")
		if r := s.Requests(); len(r) != 2 || !strings.Contains(r[1].Query, "allowWatchBookmarks=true") ||
			!strings.Contains(r[1].Query, "timeoutSeconds=") {
			t.Errorf("requests %v", r)
		}
	})
}

func TestFollowResumesABrokenWatchWithoutAList(t *testing.T) {
	follow(t, func(t *testing.T, s *fake.Server, n *notes) {
		s.Put(fake.Pods, bound("a", "n"))
		n.take()
		s.Requests()
		for i := range 10 { // a watch that breaks every second
			time.Sleep(time.Second)
			s.BreakWatches()
			s.Put(fake.Pods, bound(fmt.Sprint("p", i), "n"))
			n.want(t, "after a break", fmt.Sprintf("set p%d", i))
		}
		for _, r := range s.Requests() {
			if !strings.Contains(r.Query, "watch=true") {
				t.Errorf("listed anew: %s %s", r.Path, r.Query)
			}
		}
	})
}

// Over HTTP/2, the client library makes an error of a stream that an intermediary resets. That is a
// broken stream like any other, but an error that the API server sends is not.
func TestFollowResumesAStreamThatWasReset(t *testing.T) {
	for name, tc := range map[string]struct {
		said string
		want string
	}{
		"reset": {
			"unable to decode an event from the watch stream: stream error: stream ID 7; INTERNAL_ERROR; received " +
				"from peer", "replace [1], set 2, set 3, set 4",
		},
		"broken": {
			"unable to decode an event from the watch stream: invalid character '<'",
			"replace [1], set 2, trouble, replace [1], set 2, trouble, replace [1], set 2",
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := &notes{}
				source := kube.Source[*v1.Pod]{
					Name: "pods",
					List: func(context.Context) ([]*v1.Pod, string, error) {
						return []*v1.Pod{{ObjectMeta: metav1.ObjectMeta{Name: "1", ResourceVersion: "1"}}}, "1", nil
					},
					Watch: func(_ context.Context, revision string) (watch.Interface, error) {
						at, _ := strconv.Atoi(revision)
						w := watch.NewFakeWithChanSize(2, false)
						w.Add(&v1.Pod{ObjectMeta: metav1.ObjectMeta{
							Name: fmt.Sprint(at + 1), ResourceVersion: fmt.Sprint(at + 1),
						}})
						if at < 3 {
							w.Error(apierrors.NewClientErrorReporter(http.StatusInternalServerError, "GET",
								"ClientWatchDecoding").AsObject(errors.New(tc.said)))
						}
						return w, nil
					},
				}
				ctx, cancel := context.WithCancel(t.Context())
				var done sync.WaitGroup
				done.Go(func() { kube.Follow(ctx, source, n.handler()) })
				time.Sleep(600 * time.Millisecond)
				if got := n.take(); !strings.HasPrefix(got, tc.want) {
					t.Errorf("told %q, want %q", got, tc.want)
				}
				cancel()
				done.Wait()
			})
		})
	}
}

func TestFollowListsAnewWhereTheRevisionIsForgotten(t *testing.T) {
	follow(t, func(t *testing.T, s *fake.Server, n *notes) {
		s.Put(fake.Pods, bound("a", "n"))
		n.take()
		s.Compact()
		n.take() // the list
		s.Put(fake.Pods, bound("b", "n"))
		time.Sleep(10 * time.Second)
		if got := n.take(); !strings.HasSuffix(got, "set b") && !strings.HasSuffix(got, "replace [a b]") {
			t.Errorf("told %q", got)
		}
	})
}

func TestFollowKeepsWhatItReadWhileTheServerIsAway(t *testing.T) {
	follow(t, func(t *testing.T, s *fake.Server, n *notes) {
		s.Put(fake.Pods, bound("a", "n"))
		n.take()
		s.Stop()
		for range 5 {
			time.Sleep(time.Minute)
			if got := n.take(); strings.Contains(got, "replace") || strings.Contains(got, "remove") {
				t.Errorf("told %q while the server was away", got)
			}
		}
		s.Start()
		s.Put(fake.Pods, bound("b", "n"))
		time.Sleep(6 * time.Second) // the longest wait
		if got := n.take(); !strings.HasSuffix(got, "replace [a b]") {
			t.Errorf("told %q after its return", got)
		}
	})
}

func TestFollowStandsErrors(t *testing.T) {
	for _, tc := range []struct {
		name  string
		fault fake.Fault
	}{
		{"errors", fake.Fault{Code: http.StatusInternalServerError}},
		{"too many requests", fake.Fault{Code: http.StatusTooManyRequests, RetryAfter: 1}},
		{"refused", fake.Fault{Code: http.StatusForbidden}},
		{"late answers", fake.Fault{Delay: 30 * time.Second}},
		{"no answers", fake.Fault{Drop: true}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := fake.New()
				s.Put(fake.Pods, bound("a", "n"))
				s.Fail(func(*http.Request) *fake.Fault { return &tc.fault })
				conn := s.Conn(kube.Config{})
				pods, err := kube.Pods(conn)
				if err != nil {
					t.Fatal(err)
				}
				n := &notes{}
				ctx, cancel := context.WithCancel(t.Context())
				var done sync.WaitGroup
				done.Go(func() { pods.Follow(ctx, "", "", n.handler()) })
				time.Sleep(90 * time.Second)
				if got, late := n.take(), tc.fault.Delay > 0; strings.Contains(got, "replace") != late {
					t.Errorf("told %q", got)
				}
				if got := len(s.Requests()); got > 100 {
					t.Errorf("%d requests in 90 s", got)
				}
				s.Fail(nil)
				time.Sleep(40 * time.Second)
				s.Put(fake.Pods, bound("b", "n"))
				time.Sleep(time.Second)
				if got := n.take(); !strings.HasSuffix(got, "set b") {
					t.Errorf("afterwards told %q", got)
				}
				cancel()
				done.Wait()
				conn.CloseConnections()
				s.Close()
			})
		})
	}
}

func TestClientReadsAndWrites(t *testing.T) {
	for _, contentType := range []string{"", protobuf} {
		t.Run("content type "+contentType, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := fake.New()
				defer s.Close()
				var told []string
				conn := s.Conn(kube.Config{
					ContentType: contentType,
					QPS:         50,
					Burst:       100,
					Observe: func(method, host, code string) {
						told = append(told, method+" "+code)
					},
				})
				defer conn.CloseConnections()
				pods, err := kube.Pods(conn)
				if err != nil {
					t.Fatal(err)
				}
				ctx := t.Context()
				made, err := pods.Create(ctx, bound("a", "n"))
				if err != nil || made.UID == "" {
					t.Fatalf("created %+v, %v", made, err)
				}
				patched, err := pods.Patch(ctx, "ns", "a",
					[]byte(`{"metadata":{"uid":"`+string(made.UID)+`"},"status":{"phase":"Running"}}`), "status")
				if err != nil || patched.Status.Phase != v1.PodRunning {
					t.Errorf("patched %+v, %v", patched, err)
				}
				if _, err := pods.Patch(ctx, "ns", "a", []byte(`{"metadata":{"uid":"other"}}`), "status"); err == nil {
					t.Error("a patch for another pod was taken")
				}
				if list, revision, err := pods.List(ctx, "ns", metav1.ListOptions{}); err != nil || len(list) != 1 ||
					revision == "" {
					t.Errorf("listed %v at %q, %v", list, revision, err)
				}
				if err := pods.Delete(ctx, "ns", "a", *metav1.NewDeleteOptions(0)); err != nil {
					t.Error(err)
				}
				if _, err := pods.Get(ctx, "ns", "a"); err == nil ||
					!strings.Contains(err.Error(), "reading pods ns/a: ") {
					t.Errorf("read what is gone: %v", err)
				}
				want := []string{"POST 200", "PATCH 200", "PATCH 409", "GET 200", "DELETE 200", "GET 404"}
				if !slices.Equal(told, want) {
					t.Errorf("told of %v, want %v", told, want)
				}
			})
		})
	}
}
