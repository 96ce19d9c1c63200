package runtimestate

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// silentRuntime is a runtime that answers, fails or hangs.
type silentRuntime struct {
	Runtime
	mu   sync.Mutex
	mode string
}

func (r *silentRuntime) set(mode string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mode = mode
}

func (r *silentRuntime) Version(ctx context.Context) (*runtimeapi.VersionResponse, error) {
	r.mu.Lock()
	mode := r.mode
	r.mu.Unlock()
	switch mode {
	case "fails":
		return nil, errors.New("connection refused")
	case "hangs":
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return &runtimeapi.VersionResponse{}, nil
}

// A runtime that is silent for 5 seconds is reported once, and so is its return. A short silence
// is not.
func TestSilenceIsReported(t *testing.T) {
	for _, mode := range []string{"fails", "hangs"} {
		t.Run(mode, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rt, log, events, changes := &silentRuntime{}, &bytes.Buffer{}, []string(nil), 0
				s := New(Deps{
					Runtime: rt, Logger: slog.New(slog.NewTextHandler(log, nil)), Changed: func() { changes++ },
					Event: func(kind, reason, _ string) { events = append(events, kind+" "+reason) },
				})
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan error, 1)
				go func() { done <- s.Watch(ctx) }()
				time.Sleep(time.Second)
				rt.set(mode)
				s.Doubt()
				time.Sleep(2500 * time.Millisecond) // between two questions
				rt.set("answers")
				time.Sleep(time.Minute)
				if s.Silence() != nil || len(events) != 0 || log.Len() != 0 {
					t.Errorf("a short silence: %v, %v, %s", s.Silence(), events, log)
				}
				rt.set(mode)
				s.Doubt()
				began := time.Now()
				time.Sleep(silentAfter + answerTimeout + silentRetry)
				silence := s.Silence()
				if silence == nil || !silence.Since.Equal(began) || silence.Err == nil {
					t.Errorf("silence %+v, which began at %v", silence, began)
				}
				time.Sleep(time.Hour)
				rt.set("answers")
				time.Sleep(10 * time.Second)
				if s.Silence() != nil {
					t.Errorf("silence %+v of a runtime that answers", s.Silence())
				}
				cancel()
				if err := <-done; err != nil {
					t.Error(err)
				}
				want := "Warning RuntimeUnavailable,Normal RuntimeAvailable"
				if got := strings.Join(events, ","); got != want || changes != 2 {
					t.Errorf("events %q, %d changes", got, changes)
				}
				if strings.Count(log.String(), "level=ERROR") != 1 || strings.Count(log.String(), "answers again") != 1 {
					t.Errorf("log: %s", log)
				}
			})
		})
	}
}

// Whoever needs the runtime now need not wait until its silence is reported.
func TestSilentAsks(t *testing.T) {
	for _, mode := range []string{"fails", "hangs"} {
		t.Run(mode, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rt := &silentRuntime{}
				s := New(Deps{
					Runtime: rt, Logger: slog.New(slog.DiscardHandler), Changed: func() {},
					Event: func(_, _, _ string) {},
				})
				if silence := s.Silent(t.Context()); silence != nil || !s.AnswersSince().IsZero() {
					t.Errorf("%v of a runtime that answers, since %v", silence, s.AnswersSince())
				}
				began := time.Now()
				if err := s.look(t.Context()); err != nil || !s.AnswersSince().Equal(began) {
					t.Errorf("%v, it answers since %v, want %v", err, s.AnswersSince(), began)
				}
				rt.set(mode)
				time.Sleep(time.Second)
				began = time.Now()
				silence := s.Silent(t.Context())
				if silence == nil || !silence.Since.Equal(began) || time.Since(began) > answerTimeout {
					t.Errorf("%v, want one since %v", silence, began)
				}
				for range 3 {
					_ = s.look(t.Context())
					time.Sleep(silentRetry)
				}
				if again := s.Silent(t.Context()); again == nil || !again.Since.After(began) && mode == "hangs" {
					t.Errorf("%v, want one since the first look", again)
				}
				if !s.AnswersSince().IsZero() {
					t.Errorf("a silent runtime answers since %v", s.AnswersSince())
				}
				rt.set("answers")
				time.Sleep(time.Second)
				if err := s.look(t.Context()); err != nil || !s.AnswersSince().Equal(time.Now()) {
					t.Errorf("%v, it answers since %v, want %v", err, s.AnswersSince(), time.Now())
				}
			})
		})
	}
}

// A silence is an error that says since when and why, once.
func TestSilenceAsError(t *testing.T) {
	since := time.Date(2026, 1, 2, 3, 4, 5, 0, time.Local)
	for text, want := range map[string]string{
		"the container runtime does not answer on /run/c.sock (connection refused)": "the container runtime does not " +
			"answer since 2026-01-02 03:04:05 on /run/c.sock (connection refused)",
		"refused": "the container runtime does not answer since 2026-01-02 03:04:05: refused",
	} {
		cause := errors.New(text)
		if s := (&Silence{Since: since, Err: cause}); s.Error() != want || !errors.Is(s, cause) {
			t.Errorf("%q, want %q", s, want)
		}
	}
}

// An event says once that the runtime does not answer.
func TestUnavailable(t *testing.T) {
	for text, want := range map[string]string{
		"the container runtime does not answer on /run/c.sock (connection refused)": "The container runtime does not " +
			"answer on /run/c.sock (connection refused)",
		"context deadline exceeded": "The container runtime does not answer: context deadline exceeded",
	} {
		if got := unavailable(errors.New(text)); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}

// TestSilenceReason checks that the reason does not say again that the runtime does not answer.
func TestSilenceReason(t *testing.T) {
	for text, want := range map[string]string{
		"the container runtime does not answer on /run/c.sock (connection refused)":          "connection refused",
		"version: the container runtime does not answer on /run/c.sock (connection refused)": "connection refused",
		"context deadline exceeded":                        "context deadline exceeded",
		"the container runtime ended the connection (EOF)": "the container runtime ended the connection (EOF)",
	} {
		if got := (&Silence{Err: errors.New(text)}).Reason(); got != want {
			t.Errorf("%s: %q", text, got)
		}
	}
}
