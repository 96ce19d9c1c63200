package tokens

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// greedy is how many tokens the pod asks for that asks for too many.
const greedy = 1000

// line is a manager whose issuer answers the pod "greedy" only when the test says so.
type line struct {
	*bench
	out, most atomic.Int64
	audiences chan string // in the order of the requests

	gate atomic.Pointer[chan struct{}] // closed when the issuer answers
}

// withLine runs a test with a manager, and ends the manager.
func withLine(t *testing.T, test func(*testing.T, *line)) {
	t.Helper()
	run(t, func(t *testing.T, b *bench) {
		l := &line{bench: b, audiences: make(chan string, 4*greedy)}
		l.shut()
		b.issue = l.answer
		test(t, l)
	})
}

func (l *line) answer(
	ctx context.Context, namespace, account string, ask *authenticationv1.TokenRequest,
) (*authenticationv1.TokenRequest, error) {
	if ask.Spec.BoundObjectRef.UID == "greedy" {
		l.audiences <- ask.Spec.Audiences[0]
		for n := l.out.Add(1); n > l.most.Load(); {
			l.most.CompareAndSwap(l.most.Load(), n)
		}
		defer l.out.Add(-1)
		select {
		case <-*l.gate.Load():
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return l.bench.answer(ctx, namespace, account, ask)
}

// open lets the issuer answer, shut makes it wait again.
func (l *line) open() { close(*l.gate.Load()) }

func (l *line) shut() {
	gate := make(chan struct{})
	l.gate.Store(&gate)
}

// expect compares the requests of the greedy pod that are out, once nothing is running any more.
func (l *line) expect(t *testing.T, want int64) {
	t.Helper()
	synctest.Wait()
	if got := l.out.Load(); got != want {
		t.Errorf("%d requests of the pod are out, want %d", got, want)
	}
}

func greedyPod() *v1.Pod {
	var all []*v1.ServiceAccountTokenProjection
	for i := range greedy {
		all = append(all, projection(fmt.Sprint("audience-", i), 600))
	}
	return podWith("greedy", all...)
}

// A pod that names any number of tokens has few requests out at once, whatever they are for, and
// other pods get their tokens meanwhile.
func TestOnePodsRequestsTakeTurns(t *testing.T) {
	withLine(t, func(t *testing.T, l *line) {
		pod, other := greedyPod(), podWith("other", projection("vault", 600))
		l.Use(pod)
		l.expect(t, 4)
		l.Use(other)
		if got := l.read(other, projection("vault", 600)); got != ".1" {
			t.Errorf("another pod's token is %q while the pod waits", got)
		}
		now := make(chan error)
		go func() {
			_, err := l.Now(t.Context(), pod, "pull")
			now <- err
		}()
		l.expect(t, 4)
		l.open()
		if err := <-now; err != nil {
			t.Error(err)
		}
		l.expect(t, 0)
		if n := len(l.audiences); n != greedy+1 {
			t.Errorf("%d requests, want %d", n, greedy+1)
		}
		for range greedy - 3 { // the last four are out at once
			if a := <-l.audiences; a == "pull" {
				t.Error("the last request overtook others")
			}
		}
		for range 4 {
			<-l.audiences
		}
		l.shut()
		time.Sleep(10 * time.Minute) // all are renewed
		l.expect(t, 4)
		l.open()
		l.expect(t, 0)
		if n := l.most.Load(); n != 4 {
			t.Errorf("%d requests of the pod were out at once", n)
		}
		if n := len(l.audiences); n < greedy {
			t.Errorf("%d tokens were renewed", n)
		}
	})
}

// Requests that wait end with their pod, or with their caller, and leave nothing.
func TestWaitingRequestsEnd(t *testing.T) {
	withLine(t, func(t *testing.T, l *line) {
		pod := greedyPod()
		l.Use(pod)
		l.expect(t, 4)
		ctx, cancel := context.WithCancelCause(t.Context())
		now := make(chan error)
		go func() {
			_, err := l.Now(ctx, pod, "pull")
			now <- err
		}()
		synctest.Wait()
		cancel(errAway)
		if err := <-now; !errors.Is(err, errAway) {
			t.Error(err)
		}
		l.Drop(types.UID("greedy"))
		l.rounds.Wait()
		l.expect(t, 0)
		if n := l.turns.Pods(); n != 0 {
			t.Errorf("the turns of %d pods are left", n)
		}
		if n := l.most.Load(); n != 4 {
			t.Errorf("%d requests of the pod were out at once", n)
		}
	})
}
