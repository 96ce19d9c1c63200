package history

import (
	"context"
	"errors"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
)

// A reader that nobody waits for any more ends, also while a hung disk keeps the lock.
func TestReadersGiveUp(t *testing.T) {
	play(t, 1<<20, func(t *testing.T, n *node) {
		n.Event(event("a", "written", 1))
		time.Sleep(time.Minute)
		ended, end := context.WithCancel(context.Background())
		end()
		if _, err := n.Events(ended, time.Time{}); !errors.Is(err, context.Canceled) {
			t.Errorf("the events: %v", err)
		}
		if _, err := n.Previous(ended, "ns", []string{"a"}, ""); !errors.Is(err, context.Canceled) {
			t.Errorf("the life: %v", err)
		}
		if err := n.disk.lock(context.Background()); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if _, err := n.Events(ctx, time.Time{}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("beside a hung disk: %v", err)
		}
		n.disk.unlock()
		n.want(t, "afterwards", n.heard(t, time.Hour), "written x1")
	})
}

// A slow reader keeps no writer waiting, and gets everything once: also what is written or removed
// meanwhile.
func TestSlowReader(t *testing.T) {
	play(t, 1<<20, func(t *testing.T, n *node) {
		n.step("web-1", "admit")
		time.Sleep(time.Minute)
		n.Event(event("a", "in the queue", 1))
		s, err := n.open(context.Background(), time.Time{})
		defer s.close()
		if err != nil || len(s.parts) != 1 {
			t.Fatalf("%d parts, %v", len(s.parts), err)
		}
		time.Sleep(time.Minute) // the queue is written to the same segment
		if err := n.disk.lock(context.Background()); err != nil {
			t.Fatal(err)
		}
		n.segments.close()
		if err := n.segments.prune(time.Now().Add(48*time.Hour), 0); err != nil {
			t.Fatal(err)
		}
		n.disk.unlock()
		var lives int
		var events []*v1.Event
		count := func(rec record) {
			if rec.Life != nil {
				lives++
			}
			if rec.Event != nil {
				events = append(events, rec.Event)
			}
		}
		if err := s.parts[0].each(context.Background(), count); err != nil || lives != 1 || len(events) != 0 {
			t.Errorf("%d lives, %d events, %v", lives, len(events), err)
		}
		if len(s.queue) != 1 || s.queue[0].Event == nil {
			t.Errorf("the queue: %+v", s.queue)
		}
		n.want(t, "after the removal", n.heard(t, time.Hour), "")
	})
}
