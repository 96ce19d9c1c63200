package worker

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// script is a pool whose passes are scripted and noted.
type script struct {
	*Pool
	t     *testing.T
	begin time.Time

	mu sync.Mutex
	// pass answers a pass; the default brings up, takes down and forgets at once.
	pass func(context.Context, Work) Result
	// gone is called when a pod is gone, if it is not nil.
	gone func()
	// notes are the passes and the ends, as "uid phase".
	notes []string
	at    []time.Duration
	works []Work
	// inside counts the passes under way by UID.
	inside map[types.UID]int
	// holder is who was worked on under a name and is not gone; not looked at where shared.
	holder map[string]types.UID
	shared bool
}

// run gives fn a pool in a bubble of fake time, and closes it afterwards.
func run(t *testing.T, fn func(t *testing.T, s *script)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := newScript(t.Context(), t)
		defer s.Close()
		fn(t, s)
	})
}

func newScript(ctx context.Context, t *testing.T) *script {
	s := &script{t: t, begin: time.Now(), inside: map[types.UID]int{}, holder: map[string]types.UID{}}
	s.pass = func(_ context.Context, w Work) Result { return Result{Done: w.Phase != Running} }
	s.Pool = New(ctx, Config{}, Deps{Pass: s.scripted, Gone: s.noteGone, Logger: slog.New(slog.DiscardHandler)})
	return s
}

func (s *script) scripted(ctx context.Context, w Work) Result {
	s.mu.Lock()
	if s.inside[w.UID]++; s.inside[w.UID] > 1 {
		s.t.Errorf("two passes over %s at once", w.UID)
	}
	if h, ok := s.holder[w.Pod.Name]; ok && h != w.UID && !s.shared {
		s.t.Errorf("pod %s is worked on while %s holds the name %s", w.UID, h, w.Pod.Name)
	}
	s.holder[w.Pod.Name] = w.UID
	s.notes = append(s.notes, fmt.Sprintf("%s %s", w.UID, w.Phase))
	s.at = append(s.at, time.Since(s.begin))
	s.works = append(s.works, w)
	pass := s.pass
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		s.inside[w.UID]--
		s.mu.Unlock()
	}()
	return pass(ctx, w)
}

func (s *script) noteGone(uid types.UID, next *v1.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.holder, func(_ string, h types.UID) bool { return h == uid })
	if next == nil {
		s.notes = append(s.notes, fmt.Sprintf("%s gone", uid))
	} else {
		s.notes = append(s.notes, fmt.Sprintf("%s comes back", uid))
	}
	if s.gone != nil {
		s.gone()
	}
	s.at = append(s.at, time.Since(s.begin))
	s.works = append(s.works, Work{})
}

// as replaces what passes do.
func (s *script) as(pass func(context.Context, Work) Result) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pass = pass
}

// take waits until nothing goes on any more and returns the notes since the last call.
func (s *script) take() []string {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	out := s.notes
	s.notes = nil
	return out
}

// last returns the latest pass's work.
func (s *script) last() Work {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.works[len(s.works)-1]
}

func (s *script) want(notes ...string) {
	s.t.Helper()
	if got := s.take(); fmt.Sprint(got) != fmt.Sprint(notes) {
		s.t.Errorf("passes:\n got %q\nwant %q", got, notes)
	}
}

func pod(uid, name string) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID(uid), Namespace: "ns", Name: name}}
}

func seconds(n int64) *int64 { return &n }
