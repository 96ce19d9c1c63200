package runtimestate

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/berthd/berth/internal/notify"
)

const (
	// watchPeriod is the time between two questions while the runtime answers; a kubelet asks as
	// often.
	watchPeriod = 5 * time.Second
	// silentRetry is the time between two questions while the runtime is silent.
	silentRetry = time.Second
	// answerTimeout is how long an answer may take.
	answerTimeout = 2 * time.Second
	// silentAfter is how long the runtime may be silent before that is reported.
	silentAfter = 5 * time.Second
)

// Silence says that the runtime does not answer.
type Silence struct {
	// Since is when the runtime was first asked in vain.
	Since time.Time
	// Err is the error of the last question.
	Err error
}

// answersNot are the words of errors about a runtime that does not answer.
const answersNot = "the container runtime does not answer"

// Reason returns why the runtime does not answer. It leaves out the words that it does not answer,
// and where, with which some errors begin.
func (s *Silence) Reason() string {
	text := s.Err.Error()
	_, rest, said := strings.Cut(text, answersNot)
	if _, cause, found := strings.Cut(rest, "("); said && found {
		return strings.TrimSuffix(cause, ")")
	}
	return text
}

// Error says since when the runtime does not answer, and why.
func (s *Silence) Error() string {
	return answersNot + " since " + s.Since.Local().Format(time.DateTime) + after(s.Err)
}

// Unwrap returns the error of the last question.
func (s *Silence) Unwrap() error { return s.Err }

// watch is what a [State] knows about whether its runtime answers.
type watch struct {
	// doubt asks for a question at once.
	doubt notify.Signal

	mu      sync.Mutex
	silence *Silence
	// reported says that the silence was reported.
	reported bool
	// answers is since when the runtime has answered every question; zero while it is silent.
	answers time.Time
}

// Doubt has the runtime asked at once, because something failed.
func (s *State) Doubt() { s.watch.doubt.Notify() }

// Silence returns since when the runtime has not answered, and why, once it has been silent for 5
// seconds; nil if it answers.
func (s *State) Silence() *Silence {
	s.watch.mu.Lock()
	defer s.watch.mu.Unlock()
	if !s.watch.reported {
		return nil
	}
	silence := *s.watch.silence
	return &silence
}

// Silent is [State.Silence] for somebody who needs the runtime now: unless the runtime is known to
// be silent, Silent asks it, and takes no answer within 2 seconds for silence.
func (s *State) Silent(ctx context.Context) *Silence {
	if known := s.Silence(); known != nil {
		return known
	}
	began := time.Now()
	asking, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	err := s.Answers(asking)
	if err == nil || ctx.Err() != nil {
		return nil
	}
	s.watch.mu.Lock()
	defer s.watch.mu.Unlock()
	if before := s.watch.silence; before != nil {
		began = before.Since
	}
	return &Silence{Since: began, Err: err}
}

// AnswersSince returns since when the runtime has answered every question of [State.Watch]; zero
// while it is silent, and before the first answer.
func (s *State) AnswersSince() time.Time {
	s.watch.mu.Lock()
	defer s.watch.mu.Unlock()
	return s.watch.answers
}

// Watch asks the runtime every few seconds whether it is there, until ctx ends. It reports a
// silence of more than 5 seconds, and the silence's end, by the log, an event and [Deps.Changed].
func (s *State) Watch(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		case <-s.watch.doubt:
		}
		wait := watchPeriod
		if s.look(ctx) != nil {
			wait = silentRetry
		}
		timer.Reset(wait)
	}
}

// look asks the runtime once.
func (s *State) look(ctx context.Context) error {
	began := time.Now()
	asking, cancel := context.WithTimeout(ctx, answerTimeout)
	err := s.Answers(asking)
	cancel()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	w := &s.watch
	w.mu.Lock()
	before, reported := w.silence, w.reported
	if err == nil {
		w.silence, w.reported = nil, false
		if w.answers.IsZero() {
			w.answers = time.Now()
		}
	} else {
		w.answers = time.Time{}
		w.silence = &Silence{Since: began, Err: err}
		if before != nil {
			w.silence.Since = before.Since
		}
		w.reported = time.Since(w.silence.Since) >= silentAfter
	}
	after, report := w.silence, w.reported
	w.mu.Unlock()
	switch {
	case report && !reported:
		s.deps.Logger.Error("the container runtime does not answer: pods run on, but nothing about them is known or "+
			"can be changed until the runtime is back", "since", after.Since.Format(time.RFC3339), "err", err)
		s.deps.Event(v1.EventTypeWarning, "RuntimeUnavailable", unavailable(err))
		s.deps.Changed()
	case reported && err == nil:
		silent := time.Since(before.Since).Round(time.Second)
		s.deps.Logger.Info("the container runtime answers again", "silent", silent)
		s.deps.Event(v1.EventTypeNormal, "RuntimeAvailable",
			fmt.Sprintf("The container runtime answers again, after %v", silent))
		s.deps.Changed()
	}
	return err
}

// unavailable returns an event's message about a runtime that does not answer.
func unavailable(err error) string {
	return "The" + strings.TrimPrefix(answersNot, "the") + after(err)
}

// after returns why the runtime does not answer, to follow [answersNot]. Some errors say that in
// the same words.
func after(err error) string {
	if _, rest, said := strings.Cut(err.Error(), answersNot); said {
		return rest
	}
	return ": " + err.Error()
}
