package images

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/containerd/errdefs"
	v1 "k8s.io/api/core/v1"

	"github.com/berthd/berth/cri"
)

// registry has the progress of a test's pulls.
type registry struct {
	mu  sync.Mutex
	at  cri.PullProgress
	err error
}

func (r *registry) set(at cri.PullProgress, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.at, r.err = at, err
}

func (r *registry) PullProgress(context.Context, string, time.Time) (cri.PullProgress, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.at, r.err
}

// pullsFunc reports progress by a function.
type pullsFunc func(ctx context.Context, image string, since time.Time) (cri.PullProgress, error)

func (f pullsFunc) PullProgress(ctx context.Context, image string, since time.Time) (cri.PullProgress, error) {
	return f(ctx, image, since)
}

func TestPullThatStandsStillIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &registry{}
		b := start(t, Config{StallTimeout: time.Minute, MaxParallelPulls: 1}, Deps{Pulls: r})
		b.runtime.pull, _ = held()
		b.want("a", "x:1")
		b.want("b", "y:1")
		b.sleep(time.Minute)
		const message = "the pull stalled: the registry sent nothing for 1m0s"
		wantWait(t, b.want("a", "x:1"), ReasonPull, message, failureShown)
		b.wantEvents(
			`a/c Normal Pulling: Pulling image "x:1"`,
			`a/c Warning Failed: Failed to pull image "x:1": `+message,
			`a/c Warning Failed: Error: ErrImagePull`,
			`b/c Normal Pulling: Pulling image "y:1"`) // the stalled pull does not count any more
		b.runtime.pull = nil
		b.forget("b")
		b.sleep(DefaultBackoffInitial)
		b.want("a", "x:1")
		wantReady(t, b.want("a", "x:1"))
	})
}

func TestStalls(t *testing.T) {
	const total = 100_000_000
	for name, tc := range map[string]struct {
		at func(elapsed time.Duration) (cri.PullProgress, error)
		// the message with which the pull is ended within ten minutes; empty if it is not ended
		given string
	}{
		"slow but steady": {at: func(d time.Duration) (cri.PullProgress, error) {
			return cri.PullProgress{Done: int64(d / time.Second), Total: total}, nil
		}},
		"stops": {
			at: func(d time.Duration) (cri.PullProgress, error) {
				return cri.PullProgress{Done: 1_234_567 * min(int64(d/time.Minute), 3), Total: total}, nil
			},
			given: "the pull stalled: the registry sent nothing for 1m30s, after 3.7 MB of 100.0 MB",
		},
		"never begins": {
			at:    func(time.Duration) (cri.PullProgress, error) { return cri.PullProgress{}, nil },
			given: "the pull stalled: the registry sent nothing for 1m30s",
		},
		"manifest unknown, something comes": {at: func(d time.Duration) (cri.PullProgress, error) {
			return cri.PullProgress{Activity: uint64(d / time.Minute)}, nil
		}},
		"unpacking": {at: func(time.Duration) (cri.PullProgress, error) {
			return cri.PullProgress{Done: total, Total: total, Unpacking: true}, nil
		}},
		"all has come, and nothing is done with it": {
			at: func(time.Duration) (cri.PullProgress, error) {
				return cri.PullProgress{Done: total, Total: total}, nil
			},
			given: "the pull stalled: the registry sent nothing for 1m30s, after 100.0 MB of 100.0 MB",
		},
		"cannot be looked at for a time": {at: func(d time.Duration) (cri.PullProgress, error) {
			if d > 2*time.Minute {
				return cri.PullProgress{}, errdefs.ErrUnavailable
			}
			return cri.PullProgress{Done: int64(d / time.Second), Total: total}, nil
		}},
		"is smaller now": {at: func(d time.Duration) (cri.PullProgress, error) {
			return cri.PullProgress{Done: total/2 - int64(d/time.Minute), Total: total}, nil
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				b := start(t, Config{StallTimeout: 90 * time.Second},
					Deps{Pulls: pullsFunc(func(context.Context, string, time.Time) (cri.PullProgress, error) {
						return tc.at(time.Since(began))
					})})
				b.runtime.pull, _ = held()
				b.want("a", "x:1")
				for range 600 {
					b.sleep(time.Second)
					if res := b.want("a", "x:1"); res.Reason == ReasonPull {
						if res.Message != tc.given {
							t.Errorf("after %v: %s", time.Since(began), res.Message)
						}
						return
					}
				}
				if tc.given != "" {
					t.Errorf("the pull is not given up")
				}
				if got := b.Progress(context.Background()); len(got) != 1 || got[0].State == BackOff {
					t.Errorf("progress is %+v", got)
				}
			})
		})
	}
}

// TestSilentRegistriesHoldNobodyUp has a registry that sends nothing, and as many pulls of it as
// the limit allows: other pulls begin long before these are ended.
func TestSilentRegistriesHoldNobodyUp(t *testing.T) {
	for _, parallel := range []int{2, 1} {
		synctest.Test(t, func(t *testing.T) {
			var bytes atomic.Int64
			b := start(t, Config{StallTimeout: 80 * time.Second, MaxParallelPulls: parallel}, Deps{
				Pulls: pullsFunc(func(_ context.Context, image string, _ time.Time) (cri.PullProgress, error) {
					if image == "silent.example/a:1" || image == "silent.example/b:1" {
						return cri.PullProgress{}, nil
					}
					return cri.PullProgress{Done: bytes.Add(1), Total: 1 << 30}, nil
				}),
			})
			b.runtime.pull, _ = held()
			for _, image := range []string{
				"silent.example/a:1", "silent.example/b:1", "r.io/c:1", "r.io/d:1", "r.io/e:1",
			} {
				b.want(image, image)
			}
			b.sleep(30 * time.Second)
			// and e waits for c or d
			want := []string{"silent.example/a:1", "silent.example/b:1", "r.io/c:1", "r.io/d:1"}
			if parallel == 1 {
				want = want[:1]
			}
			got := b.runtime.begun()
			slices.Sort(got) // pulls that begin at the same time are in any order
			slices.Sort(want)
			if !slices.Equal(got, want) {
				t.Errorf("pulls: %v, want %v", got, want)
			}
			if p := b.Progress(context.Background())[3]; p.Image != "silent.example/a:1" || p.State != Stalled ||
				time.Since(p.Since) != 30*time.Second {
				t.Errorf("progress is %+v", p)
			}
		})
	}
}

// TestNextCredentialsHaveTheirTime has a first login that takes long: each attempt's progress is
// measured from the attempt's own start.
func TestNextCredentialsHaveTheirTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, n := &registry{}, newNode()
		n.setNode("", "eve", "alice")
		b := start(t, Config{StallTimeout: time.Minute}, Deps{Pulls: r, Node: n})
		b.runtime.deny = func(_, user string) error {
			time.Sleep(50 * time.Second)
			if user == "eve" {
				return errPull
			}
			return nil
		}
		b.want("a", private)
		b.sleep(100 * time.Second)
		wantReady(t, b.want("a", private))
	})
}

func TestProgressOfPulls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &registry{}
		b := start(t, Config{MaxParallelPulls: 1}, Deps{Pulls: r})
		var release func(error)
		b.runtime.pull, release = held()
		b.want("a", "x:1")
		b.want("b", "y:1")
		look := func() Pull {
			t.Helper()
			list := b.Progress(context.Background())
			if len(list) != 2 || list[1].State != Queued || list[1].Total != 0 {
				t.Fatalf("progress is %+v", list)
			}
			return list[0]
		}
		if p := look(); p.State != Pulling || p.Done != 0 || p.Total != 0 {
			t.Errorf("before the manifest has come: %+v", p)
		}
		r.set(cri.PullProgress{Done: 5, Total: 20}, nil)
		if p := look(); p.State != Pulling || p.Done != 5 || p.Total != 20 {
			t.Errorf("half way: %+v", p)
		}
		r.set(cri.PullProgress{Done: 20, Total: 20, Unpacking: true}, nil)
		if p := look(); p.State != Unpacking {
			t.Errorf("at the end: %+v", p)
		}
		r.set(cri.PullProgress{}, errors.New("no word"))
		if p := look(); p.State != Pulling || p.Total != 0 {
			t.Errorf("without a word from the runtime: %+v", p)
		}
		release(nil)
	})
}

func TestPaceOfPulls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, Config{MaxParallelPulls: -1, PullsPerSecond: 0.5, PullBurst: 2}, Deps{})
		began := time.Now()
		var mu sync.Mutex
		var at []time.Duration
		b.runtime.pull = func(context.Context, string) error {
			mu.Lock()
			defer mu.Unlock()
			at = append(at, time.Since(began).Round(100*time.Millisecond))
			return nil
		}
		for _, image := range []string{"a:1", "b:1", "c:1", "d:1"} {
			b.want("p"+image, image)
		}
		wantWait(t, b.want("pd:1", "d:1"), ReasonCreating, `Image "d:1" is queued for its pull`, 0)
		b.sleep(time.Minute)
		b.want("pe", "e:1")
		b.want("pf", "f:1")
		b.want("pg", "g:1")
		b.sleep(10 * time.Second)
		s := time.Second
		if want := []time.Duration{0, 0, 2 * s, 4 * s, 60 * s, 60 * s, 62 * s}; !slices.Equal(at, want) {
			t.Errorf("pulls began at %v, want %v", at, want)
		}
	})
}

func TestPace(t *testing.T) {
	now := time.Unix(0, 0)
	p := rate{perSecond: 2, burst: 0} // a burst of 0 counts as 1
	for i, want := range []time.Duration{0, 500 * time.Millisecond, 500 * time.Millisecond} {
		if got := p.take(now); got != want {
			t.Errorf("take %d waits %v, want %v", i, got, want)
		}
	}
	if got := p.take(now.Add(500 * time.Millisecond)); got != 0 {
		t.Errorf("later it waits %v", got)
	}
	if got := p.take(now.Add(-time.Hour)); got < 500*time.Millisecond {
		t.Errorf("when the clock has gone back it waits %v", got)
	}
	if got := (&rate{}).take(now); got != 0 {
		t.Errorf("without a bound it waits %v", got)
	}
}

func TestCriticalPodsComeFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, Config{MaxParallelPulls: 1}, Deps{})
		var release func(error)
		b.runtime.pull, release = held()
		class := func(name string) func(*Request) { return func(r *Request) { r.Pod.Spec.PriorityClassName = name } }
		b.want("a", "a:1")
		b.want("b", "b:1", priority(1_000_000_000))
		b.want("c", "c:1", class("system-cluster-critical"))
		b.want("d", "d:1", class("system-node-critical"))
		b.want("e", "e:1", class("other"))
		for range 5 {
			release(nil)
		}
		const hub = "docker.io/library/"
		b.wantPulls(hub+"a:1", hub+"d:1", hub+"c:1", hub+"b:1", hub+"e:1")
	})
}

func TestVolumesAndContainersWaitApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, Config{}, Deps{})
		volume := func(r *Request) { r.Container, r.Volume, r.Policy = "", "c", v1.PullAlways }
		b.want("a", "x:1", volume)
		wantReady(t, b.want("a", "x:1", volume))
		b.want("a", "x:1", policy(v1.PullAlways))
		b.wantPulls("docker.io/library/x:1", "docker.io/library/x:1")
	})
}
