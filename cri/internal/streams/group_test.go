package streams

import (
	"context"
	"errors"
	"testing"

	"github.com/berthd/berth/cri"
)

var errRefused = errors.New("refused")

// The caller gets a refusal, however soon it comes.
func TestRefusedStream(t *testing.T) {
	g := New()
	defer g.Close()
	for range 200 {
		refused := make(chan struct{})
		_, err := g.Open(t.Context(), func(context.Context, *Mailbox) error {
			defer close(refused)
			return errRefused
		}, Answered(func(ctx context.Context) error {
			<-refused
			return ctx.Err()
		}, 0))
		if err != nil && !errors.Is(err, errRefused) {
			t.Fatalf("got %v, want nil or the refusal", err)
		}
	}
}

func TestStreamEnds(t *testing.T) {
	for name, byClose := range map[string]bool{"with its context": false, "on Close": true} {
		g := New()
		ctx, cancel := context.WithCancel(t.Context())
		events, err := g.Open(ctx, func(ctx context.Context, box *Mailbox) error {
			box.Put(cri.Event{ID: "a"})
			<-ctx.Done()
			return ctx.Err()
		}, Answered(func(context.Context) error { return nil }, 0))
		if err != nil {
			t.Fatal(err)
		}
		if event := <-events; event.ID != "a" {
			t.Errorf("%s: got %+v", name, event)
		}
		if byClose {
			g.Close()
		} else {
			cancel()
		}
		for range events {
			t.Errorf("%s: an event after the end", name)
		}
		cancel()
		g.Close()
	}
}
