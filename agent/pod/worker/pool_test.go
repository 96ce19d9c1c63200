package worker

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berthd/berth/internal/pods"
)

func TestLife(t *testing.T) {
	run(t, func(_ *testing.T, s *script) {
		s.Set(pod("a", "x"))
		s.want("a Running")
		s.Wake("a")
		s.want("a Running")
		s.Wake("nobody")
		s.want()
		s.Remove("a")
		s.want("a Terminating", "a Terminated", "a gone")
		if n := len(s.List()); n != 0 {
			t.Errorf("%d entries after the end", n)
		}
	})
}

// Withdraw drops only a pod that still waits. A pod whose turn has come meanwhile goes on.
func TestWithdraw(t *testing.T) {
	run(t, func(t *testing.T, s *script) {
		s.as(func(_ context.Context, w Work) Result { return Result{Done: w.UID != "a" && w.Phase != Running} })
		s.Set(pod("a", "x"))
		s.take()
		s.Remove("a")
		s.Set(pod("b", "x"))
		s.want("a Terminating")
		if !s.Withdraw("b") || s.Withdraw("b") || s.Withdraw("a") || s.Withdraw("nobody") {
			t.Error("somebody else than the one that waits was withdrawn")
		}
		s.Set(pod("c", "x"))
		s.as(func(_ context.Context, w Work) Result { return Result{Done: w.Phase != Running} })
		s.Wake("a")
		s.want("a Terminating", "a Terminated", "a gone", "c Running")
		if s.Withdraw("c") {
			t.Error("one that runs was withdrawn")
		}
	})
}

func TestStopKeepsRecordsUntilRemoved(t *testing.T) {
	run(t, func(t *testing.T, s *script) {
		s.Set(pod("a", "x"))
		s.take()
		s.Stop("a", Stop{Reason: "Evicted", Message: "too big"})
		s.want("a Terminating")
		if w := s.last(); w.Stop == nil || w.Stop.Reason != "Evicted" || w.Unwanted || w.Stop.Since.IsZero() {
			t.Errorf("stop %+v, unwanted %v", w.Stop, w.Unwanted)
		}
		s.Wake("a")
		// a finished pod does not run again because its source sets it once more
		s.Set(pod("a", "x"))
		s.want()
		if e, ok := s.Get("a"); !ok || e.Phase != Terminated || e.Unwanted {
			t.Errorf("entry %+v, %v", e, ok)
		}
		s.Remove("a")
		s.want("a Terminated", "a gone")
	})
}

func TestFinishedPodIsTakenDown(t *testing.T) {
	run(t, func(t *testing.T, s *script) {
		s.as(func(_ context.Context, w Work) Result { return Result{Finished: w.Phase == Running, Done: true} })
		s.Set(pod("a", "x"))
		s.want("a Running", "a Terminating")
		if e, _ := s.Get("a"); e.Phase != Terminated {
			t.Errorf("phase %s", e.Phase)
		}
	})
}

func TestDoneWhileRunningMeansNothing(t *testing.T) {
	run(t, func(t *testing.T, s *script) {
		s.as(func(context.Context, Work) Result { return Result{Done: true} })
		s.Set(pod("a", "x"))
		s.want("a Running")
		if e, _ := s.Get("a"); e.Phase != Running {
			t.Errorf("phase %s", e.Phase)
		}
	})
}

func TestAdoptInEveryPhase(t *testing.T) {
	for _, c := range []struct {
		phase Phase
		want  []string
		then  []string
	}{
		{Running, []string{"a Running"}, []string{"a Terminating", "a Terminated", "a gone"}},
		{Terminating, []string{"a Terminating"}, []string{"a Terminated", "a gone"}},
		{Terminated, nil, []string{"a Terminated", "a gone"}},
	} {
		t.Run(c.phase.String(), func(t *testing.T) {
			run(t, func(_ *testing.T, s *script) {
				s.Adopt(pod("a", "x"), State{Phase: c.phase})
				s.Adopt(pod("a", "x"), State{}) // there is one already
				s.want(c.want...)
				s.Remove("a")
				s.want(c.then...)
			})
		})
	}
}

// A pod that an earlier run was ending goes on ending, for the same reason and since the same time.
func TestAdoptGoesOnEnding(t *testing.T) {
	run(t, func(t *testing.T, s *script) {
		since := time.Now().Add(-time.Minute)
		stop := &Stop{Reason: "Evicted", Message: "low on memory", Grace: seconds(5), Since: since}
		free := make(chan struct{})
		s.as(func(context.Context, Work) Result { <-free; return Result{Done: true} })
		s.Adopt(pod("a", "x"), State{Phase: Terminating, Stop: stop})
		s.want("a Terminating")
		if w := s.last(); *w.Stop != *stop || w.Unwanted {
			t.Errorf("work %+v", w)
		}
		s.Remove("a")
		e, _ := s.Get("a")
		if !e.Unwanted || !e.UnwantedSince.Equal(time.Now()) {
			t.Errorf("removed: %+v", e)
		}
		time.Sleep(time.Minute)
		s.Remove("a")
		if again, _ := s.Get("a"); again.UnwantedSince != e.UnwantedSince {
			t.Errorf("leaving since %s, and now since %s", e.UnwantedSince, again.UnwantedSince)
		}
		close(free)
		s.want("a Terminated", "a gone")
		if w := s.last(); w.Unwanted {
			t.Errorf("work %+v", w)
		}

		s.Adopt(pod("b", "y"), State{Phase: Terminated, Stop: stop, UnwantedSince: since})
		s.want("b Terminated", "b gone")
	})
}

func TestRequestsCoalesceNewestWins(t *testing.T) {
	run(t, func(t *testing.T, s *script) {
		free := make(chan struct{})
		s.as(func(context.Context, Work) Result { <-free; return Result{} })
		s.Set(pod("a", "x"))
		s.want("a Running")
		newest := pod("a", "x")
		for i := range 100 {
			newest = pod("a", "x")
			newest.Labels = map[string]string{"version": fmt.Sprint(i)}
			s.Set(newest)
			s.Wake("a")
		}
		close(free)
		s.want("a Running")
		if s.last().Pod != newest {
			t.Errorf("the sync saw version %s", s.last().Pod.Labels["version"])
		}
	})
}

func TestWakeDuringSyncCausesAnother(t *testing.T) {
	run(t, func(_ *testing.T, s *script) {
		n := 0
		s.as(func(context.Context, Work) Result {
			if n++; n < 4 {
				s.Wake("a")
			}
			return Result{}
		})
		s.Set(pod("a", "x"))
		s.want("a Running", "a Running", "a Running", "a Running")
	})
}

func TestRemoveOvertakesHangingSync(t *testing.T) {
	run(t, func(t *testing.T, s *script) {
		s.as(func(ctx context.Context, w Work) Result {
			if w.Phase == Running {
				<-ctx.Done()
				return Result{Err: context.Cause(ctx)}
			}
			return Result{Done: true}
		})
		s.Set(pod("a", "x"))
		s.want("a Running")
		began := time.Now()
		s.Remove("a")
		s.want("a Terminating", "a Terminated", "a gone")
		if d := time.Since(began); d != 0 {
			t.Errorf("it took %s of fake time: the overtaken sync counted as failed", d)
		}
	})
}

func TestStopOvertakesOnlyWithShorterGrace(t *testing.T) {
	for name, c := range map[string]struct {
		first, second *int64
		overtakes     bool
	}{
		"shorter":          {seconds(30), seconds(5), true},
		"to zero":          {nil, seconds(0), true},
		"first of its own": {nil, seconds(90), true}, // the pod's own grace is not known here
		"same":             {seconds(5), seconds(5), false},
		"longer":           {seconds(5), seconds(30), false},
		"the pod's own":    {seconds(5), nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, func(t *testing.T, s *script) {
				s.as(func(ctx context.Context, w Work) Result {
					if w.Phase == Terminating {
						<-ctx.Done()
						return Result{Err: context.Cause(ctx)}
					}
					return Result{}
				})
				s.Set(pod("a", "x"))
				s.take()
				s.Stop("a", Stop{Reason: "Evicted", Grace: c.first})
				s.want("a Terminating")
				first := s.last().Stop
				s.Stop("a", Stop{Reason: "Other", Grace: c.second})
				if !c.overtakes {
					s.want()
					return
				}
				s.want("a Terminating")
				second := s.last().Stop
				if second.Reason != "Evicted" || *second.Grace != *c.second || second.Since != first.Since {
					t.Errorf("second stop %+v", second)
				}
				if first.Grace != c.first {
					t.Error("the stop that was handed out changed")
				}
			})
		})
	}
}

func TestSuccessorWaitsForPredecessor(t *testing.T) {
	run(t, func(t *testing.T, s *script) {
		down := make(chan struct{})
		s.as(func(_ context.Context, w Work) Result {
			if w.UID == "a" && w.Phase == Terminating {
				<-down
			}
			return Result{Done: true}
		})
		s.Set(pod("a", "x"))
		s.take()
		s.Remove("a")
		s.Set(pod("b", "x"))
		s.want("a Terminating")
		if e := s.List()["b"]; !e.Waiting {
			t.Errorf("entry of the successor: %+v", e)
		}
		s.Wake("b")
		s.want()
		close(down)
		s.want("a Terminated", "a gone", "b Running")
	})
}

func TestNewestSuccessorWins(t *testing.T) {
	run(t, func(_ *testing.T, s *script) {
		s.Set(pod("a", "x"))
		s.take()
		down := make(chan struct{})
		s.as(func(_ context.Context, w Work) Result { <-down; return Result{Done: true} })
		s.Remove("a")
		for _, uid := range []string{"b", "c", "d"} {
			s.Remove(types.UID(uid))
			s.Set(pod(uid, "x"))
		}
		s.Remove("c") // long replaced
		close(down)
		s.want("a Terminating", "a Terminated", "a gone", "d Running")
	})
}

// Whoever may make pods at the API server can give one the name of a static pod. Neither keeps the
// other from starting, nor takes its turn.
func TestNameOfAStaticPodAtTheAPIServer(t *testing.T) {
	run(t, func(_ *testing.T, s *script) {
		s.shared = true
		of := func(source, uid string) *v1.Pod {
			p := pod(uid, "x")
			p.Annotations = map[string]string{pods.AnnotationSource: source}
			p.Spec.Containers = []v1.Container{{Name: "c"}}
			return p
		}
		s.Set(of(pods.SourceAPI, "api"))
		s.want("api Running")
		s.Set(of(pods.SourceFile, "static"))
		s.want("static Running")

		down := make(chan struct{})
		s.as(func(_ context.Context, w Work) Result {
			if w.UID == "static" {
				<-down
			}
			return Result{Done: w.Phase != Running}
		})
		s.Remove("static")
		s.Set(of(pods.SourceHTTP, "changed"))
		s.want("static Terminating")
		s.Remove("api")
		s.Set(of(pods.SourceAPI, "other"))
		s.want("api Terminating", "api Terminated", "api gone", "other Running")
		close(down)
		s.want("static Terminated", "static gone", "changed Running")
	})
}

// Nobody knows where a pod came from that only the runtime has. Whatever has its name waits for it.
func TestSuccessorsOfARuntimeOnlyPod(t *testing.T) {
	run(t, func(_ *testing.T, s *script) {
		s.shared = true
		s.Adopt(pod("a", "x"), State{})
		s.want("a Running")
		for _, source := range []string{pods.SourceAPI, pods.SourceFile} {
			p := pod(source, "x")
			p.Annotations = map[string]string{pods.AnnotationSource: source}
			s.Set(p)
		}
		s.want()
		s.Remove("a")
		notes := s.take()
		slices.Sort(notes)
		want := []string{"a Terminated", "a Terminating", "a gone", "api Running", "file Running"}
		if !slices.Equal(notes, want) {
			s.t.Errorf("syncs %q", notes)
		}
	})
}

func TestThreeInARow(t *testing.T) {
	run(t, func(_ *testing.T, s *script) {
		for _, uid := range []string{"a", "b", "c"} {
			s.Set(pod(uid, "x"))
			s.take()
			s.Remove(types.UID(uid))
		}
		s.Set(pod("d", "x"))
		notes := s.take()
		if i, j := slices.Index(notes, "c gone"), slices.Index(notes, "d Running"); i < 0 || j < i {
			s.t.Errorf("syncs %q", notes)
		}
	})
}

func TestRemovedSuccessorNeverStarts(t *testing.T) {
	run(t, func(_ *testing.T, s *script) {
		s.Set(pod("a", "x"))
		s.Set(pod("b", "x"))
		s.want("a Running")
		s.Remove("b")
		s.Remove("a")
		s.want("a Terminating", "a Terminated", "a gone")
	})
}

func TestSameUIDLeavesAndComesAgain(t *testing.T) {
	run(t, func(t *testing.T, s *script) {
		down := make(chan struct{})
		s.Set(pod("a", "x"))
		s.take()
		s.as(func(_ context.Context, w Work) Result {
			if w.Phase == Terminating {
				<-down
			}
			return Result{Done: w.Phase != Running}
		})
		s.Remove("a")
		again := pod("a", "x")
		s.Set(again)
		s.Remove("a")
		s.Set(again)
		s.want("a Terminating")
		if e := s.List()["a"]; !e.Unwanted || !e.Again || e.Waiting {
			t.Errorf("entry %+v", e)
		}
		if e, ok := s.Get("a"); !ok || !e.Again {
			t.Errorf("entry %+v", e)
		}
		close(down)
		s.want("a Terminated", "a comes back", "a Running")
		if w := s.last(); w.Pod != again || w.Stop != nil || w.Unwanted {
			t.Errorf("work %+v", w)
		}
	})
}

func TestSameUIDLeavesComesAgainAndLeaves(t *testing.T) {
	run(t, func(_ *testing.T, s *script) {
		down := make(chan struct{})
		s.as(func(_ context.Context, w Work) Result {
			if w.Phase == Terminating {
				<-down // it is not gone before it comes again
			}
			return Result{Done: w.Phase != Running}
		})
		s.Set(pod("a", "x"))
		s.take()
		s.Remove("a")
		s.Set(pod("a", "x"))
		s.Remove("a")
		close(down)
		s.want("a Terminating", "a Terminated", "a gone")
	})
}

func TestSameUIDIsNotWantedAtTheLastMoment(t *testing.T) {
	run(t, func(t *testing.T, s *script) {
		s.as(func(_ context.Context, w Work) Result {
			if w.Phase == Terminating {
				s.Set(pod("a", "x"))
			}
			return Result{Done: w.Phase != Running}
		})
		s.atGone = func() { s.Remove("a") }
		s.Set(pod("a", "x"))
		s.take()
		s.Remove("a")
		s.want("a Terminating", "a Terminated", "a comes back", "a gone")
		if len(s.List()) != 0 {
			t.Errorf("left: %v", s.List())
		}
	})
}

func TestUIDUnderAnotherNameIsAnotherPod(t *testing.T) {
	run(t, func(_ *testing.T, s *script) {
		s.Set(pod("a", "x"))
		s.take()
		s.Set(pod("a", "y"))
		s.want("a Terminating", "a Terminated", "a gone", "a Running")
		if s.last().Pod.Name != "y" {
			s.t.Error("the old pod runs again")
		}
		s.Set(pod("b", "x")) // the old name is free again
		s.want("b Running")
	})
}

// A pod that is renamed twice under its UID, while it ends, comes back under its last name alone.
func TestUIDUnderThirdName(t *testing.T) {
	for _, last := range []string{"a", "z"} {
		run(t, func(_ *testing.T, s *script) {
			s.Set(pod("u", "a"))
			s.take()
			down := make(chan struct{})
			s.as(func(_ context.Context, w Work) Result { <-down; return Result{Done: w.Phase != Running} })
			for _, name := range []string{"b", "c", "d", "e", "f", last} {
				s.Set(pod("u", name))
			}
			close(down)
			s.take()
			if w := s.last(); w.Phase != Running || w.Pod.Name != last || len(s.List()) != 1 || s.List()["u"].Again {
				s.t.Errorf("%s runs, and not %s", w.Pod.Name, last)
			}
		})
	}
}

func TestTwoPodsOfOneNameAdopted(t *testing.T) {
	run(t, func(_ *testing.T, s *script) {
		s.shared = true
		s.Adopt(pod("a", "x"), State{})
		s.Adopt(pod("b", "x"), State{})
		s.take()
		s.Remove("b")
		claimed := pod("a", "x")
		s.Set(claimed) // it runs already: it waits for nobody
		notes := s.take()
		slices.Sort(notes)
		if want := []string{"a Running", "b Terminated", "b Terminating", "b gone"}; !slices.Equal(notes, want) {
			s.t.Errorf("syncs %q", notes)
		}
		s.Set(pod("c", "x"))
		s.want()
		s.Remove("a")
		s.want("a Terminating", "a Terminated", "a gone", "c Running")
	})
}

func TestFailedSyncsBackOff(t *testing.T) {
	run(t, func(t *testing.T, s *script) {
		var fail atomic.Bool
		fail.Store(true)
		s.as(func(context.Context, Work) Result {
			if fail.Load() {
				return Result{Err: errors.New("no")}
			}
			return Result{}
		})
		s.Set(pod("a", "x"))
		time.Sleep(time.Minute)
		s.take()
		for i, millis := range []int{200, 400, 800, 1600, 3200, 6400, 10000, 10000, 10000} {
			got := (s.at[i+1] - s.at[i]).Round(time.Millisecond)
			high := time.Duration(millis) * time.Millisecond
			if low := high * 4 / 5; got < low || got > high {
				t.Errorf("retry %d after %s, want %s to %s", i+1, got, low, high)
			}
		}
		if e, _ := s.Get("a"); !e.RetryAt.After(time.Now()) {
			t.Errorf("next retry at %s", e.RetryAt)
		}
		// A sync that does not fail resets the back-off.
		fail.Store(false)
		time.Sleep(10 * time.Second)
		if e, _ := s.Get("a"); !e.RetryAt.IsZero() {
			t.Errorf("next retry at %s after success", e.RetryAt)
		}
		fail.Store(true)
		s.take()
		n := len(s.at)
		s.Wake("a")
		time.Sleep(time.Second)
		s.take()
		if got := s.at[n+1] - s.at[n]; got > 200*time.Millisecond {
			t.Errorf("first retry after the reset came after %s", got)
		}
	})
}

func TestWakeCutsBackOffShortButDoesNotSpin(t *testing.T) {
	run(t, func(t *testing.T, s *script) {
		s.as(func(context.Context, Work) Result {
			s.Wake("a") // as the events of what the sync did will
			return Result{Err: errors.New("no")}
		})
		s.Set(pod("a", "x"))
		time.Sleep(10 * time.Second)
		if n := len(s.take()); n < 40 || n > 70 {
			t.Errorf("%d syncs in 10 s", n)
		}
	})
}

func TestStopAfterFailureIsAtOnce(t *testing.T) {
	run(t, func(t *testing.T, s *script) {
		s.as(func(_ context.Context, w Work) Result {
			if w.Phase == Running {
				return Result{Err: errors.New("no")}
			}
			return Result{Done: true}
		})
		s.Set(pod("a", "x"))
		s.want("a Running")
		began := time.Now()
		s.Remove("a")
		s.want("a Terminating", "a Terminated", "a gone")
		if time.Since(began) != 0 {
			t.Errorf("the stop waited %s for the failed sync's back-off", time.Since(began))
		}
	})
}

func TestNewPodAfterFailureIsAtOnce(t *testing.T) {
	run(t, func(_ *testing.T, s *script) {
		s.as(func(context.Context, Work) Result { return Result{Err: errors.New("no")} })
		s.Set(pod("a", "x"))
		s.want("a Running")
		s.Set(pod("a", "x"))
		s.want("a Running")
	})
}

func TestRetryAt(t *testing.T) {
	run(t, func(t *testing.T, s *script) {
		due := time.Now().Add(7 * time.Second)
		s.as(func(context.Context, Work) Result {
			if time.Now().Before(due) {
				return Result{RetryAt: due}
			}
			return Result{}
		})
		s.Set(pod("a", "x"))
		time.Sleep(3 * time.Second)
		s.Wake("a") // changes nothing about when it is due
		time.Sleep(time.Minute)
		s.want("a Running", "a Running", "a Running")
		if s.at[2] != 7*time.Second {
			t.Errorf("syncs at %s", s.at)
		}
	})
}

func TestRetryAtInThePastDoesNotSpin(t *testing.T) {
	run(t, func(t *testing.T, s *script) {
		past := time.Now().Add(-time.Hour)
		s.as(func(context.Context, Work) Result { return Result{RetryAt: past} })
		s.Set(pod("a", "x"))
		time.Sleep(time.Second)
		if n := len(s.take()); n > 110 {
			t.Errorf("%d syncs in a second", n)
		}
	})
}

func TestRetryAtSoonerThanBackOff(t *testing.T) {
	run(t, func(t *testing.T, s *script) {
		s.as(func(context.Context, Work) Result {
			return Result{Err: errors.New("no"), RetryAt: time.Now().Add(50 * time.Millisecond)}
		})
		s.Set(pod("a", "x"))
		time.Sleep(time.Second)
		if n := len(s.take()); n < 19 {
			t.Errorf("%d syncs in a second, want one every 50 ms", n)
		}
	})
}

func TestCloseCancelsAndJoins(t *testing.T) {
	for name, end := range map[string]func(*script, context.CancelFunc){
		"close":          func(s *script, _ context.CancelFunc) { s.Close() },
		"context ends":   func(s *script, cancel context.CancelFunc) { cancel(); s.Wait() },
		"close it twice": func(s *script, _ context.CancelFunc) { s.Close(); s.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				s := newScript(ctx, t)
				left := 0
				s.as(func(ctx context.Context, w Work) Result {
					if w.UID == "hangs" {
						<-ctx.Done()
						left++
					}
					return Result{Err: errors.New("no")}
				})
				s.Set(pod("hangs", "x"))
				s.Set(pod("fails", "y"))
				s.Set(pod("waits", "x"))
				s.Adopt(pod("ended", "z"), State{Phase: Terminated})
				s.take()
				end(s, cancel)
				if left != 1 {
					t.Error("the sync under way was not waited for")
				}
				s.take()
				s.Set(pod("late", "l"))
				s.Adopt(pod("later", "m"), State{})
				s.Remove("fails")
				s.Wake("fails")
				s.Wait()
				s.want()
			})
		})
	}
}

// TestStorm has many goroutines ask for contradicting things, with real scheduling. It checks that
// what was asked for last is the result.
func TestStorm(t *testing.T) {
	s := newScript(t.Context(), t)
	defer s.Close()
	s.cfg.RetryFirst, s.cfg.RetryMax = time.Millisecond, 2*time.Millisecond
	s.as(func(_ context.Context, w Work) Result {
		switch rand.N(4) {
		case 0:
			return Result{Err: errors.New("no")}
		case 1:
			if w.Phase == Running {
				return Result{Finished: rand.N(4) == 0}
			}
		}
		return Result{Done: w.Phase != Running}
	})
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 400 {
				name := fmt.Sprintf("p%d", rand.N(3))
				uid := fmt.Sprintf("%s-%d", name, rand.N(3))
				switch rand.N(5) {
				case 0, 1:
					s.Set(pod(uid, name))
				case 2:
					s.Remove(types.UID(uid))
				case 3:
					s.Stop(types.UID(uid), Stop{Grace: seconds(rand.N(int64(9)))})
				default:
					s.Wake(types.UID(uid))
				}
			}
		})
	}
	wg.Wait()
	for uid := range s.List() {
		s.Remove(uid)
	}
	deadline := time.After(20 * time.Second)
	for len(s.List()) > 0 {
		select {
		case <-deadline:
			t.Fatalf("pods left: %v", s.List())
		case <-time.After(time.Millisecond):
		}
	}
}
