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

// script is a pool whose syncs are scripted and recorded.
type script struct {
	*Pool
	t     *testing.T
	begin time.Time

	mu sync.Mutex
	// answer answers a sync. The default brings up, takes down and forgets at once.
	answer func(context.Context, Work) Result
	// atGone is called when a pod is gone, if it is not nil.
	atGone func()
	// notes are the syncs and the ends, as "uid phase".
	notes []string
	at    []time.Duration
	works []Work
	// inside counts the syncs under way by UID.
	inside map[types.UID]int
	// holder has, by name, the pod that was worked on and is not gone. It is not checked with
	// shared.
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
	s.answer = func(_ context.Context, w Work) Result { return Result{Done: w.Phase != Running} }
	s.Pool = New(ctx, Config{}, slog.New(slog.DiscardHandler))
	s.Start(s)
	return s
}

// Sync makes a scripted sync.
func (s *script) Sync(ctx context.Context, w Work) Result {
	s.mu.Lock()
	if s.inside[w.UID]++; s.inside[w.UID] > 1 {
		s.t.Errorf("two syncs of %s at once", w.UID)
	}
	if h, ok := s.holder[w.Pod.Name]; ok && h != w.UID && !s.shared {
		s.t.Errorf("pod %s is worked on while %s holds the name %s", w.UID, h, w.Pod.Name)
	}
	s.holder[w.Pod.Name] = w.UID
	s.notes = append(s.notes, fmt.Sprintf("%s %s", w.UID, w.Phase))
	s.at = append(s.at, time.Since(s.begin))
	s.works = append(s.works, w)
	answer := s.answer
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		s.inside[w.UID]--
		s.mu.Unlock()
	}()
	return answer(ctx, w)
}

// Gone records that a pod is gone.
func (s *script) Gone(uid types.UID, next *v1.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.holder, func(_ string, h types.UID) bool { return h == uid })
	if next == nil {
		s.notes = append(s.notes, fmt.Sprintf("%s gone", uid))
	} else {
		s.notes = append(s.notes, fmt.Sprintf("%s comes back", uid))
	}
	if s.atGone != nil {
		s.atGone()
	}
	s.at = append(s.at, time.Since(s.begin))
	s.works = append(s.works, Work{})
}

// as replaces what syncs do.
func (s *script) as(answer func(context.Context, Work) Result) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answer = answer
}

// take waits until nothing happens any more and returns the notes since the last call.
func (s *script) take() []string {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	out := s.notes
	s.notes = nil
	return out
}

// last returns the latest sync's work.
func (s *script) last() Work {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.works[len(s.works)-1]
}

func (s *script) want(notes ...string) {
	s.t.Helper()
	if got := s.take(); fmt.Sprint(got) != fmt.Sprint(notes) {
		s.t.Errorf("syncs:\n got %q\nwant %q", got, notes)
	}
}

func pod(uid, name string) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID(uid), Namespace: "ns", Name: name}}
}

func seconds(n int64) *int64 { return &n }
