package history

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berthd/berth/agent/pod/timeline"
	"github.com/berthd/berth/test/leaks"
)

func TestMain(m *testing.M) { os.Exit(leaks.Run(m)) }

// node has the history of an agent, over restarts.
type node struct {
	dir  string
	line *timeline.Recorder
	*Recorder
	end func()
}

// play gives fn the history of a running agent, in fake time.
func play(t *testing.T, maxBytes int64, fn func(t *testing.T, n *node)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		n := &node{dir: filepath.Join(t.TempDir(), "history")}
		n.start(maxBytes)
		fn(t, n)
		n.end()
	})
}

func (n *node) start(maxBytes int64) {
	n.line = timeline.New()
	n.Recorder = New(Config{Dir: n.dir, MaxBytes: maxBytes, MaxAge: 24 * time.Hour}, Deps{
		Timeline: n.line, Logger: slog.New(slog.DiscardHandler),
		Pod: func(uid types.UID) (Pod, bool) {
			name, _, ok := strings.Cut(string(uid), "-")
			return Pod{Namespace: "ns", Name: name, Status: "Running"}, ok
		},
	})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- n.Run(ctx) }()
	n.end = func() {
		cancel()
		<-done
	}
}

func (n *node) restart(maxBytes int64) {
	n.end()
	n.start(maxBytes)
}

func (n *node) step(uid types.UID, step string) {
	now := time.Now()
	n.line.Add(uid, timeline.Entry{Step: step, Begin: now, End: now, Outcome: timeline.Done})
}

func event(name, message string, count int32) v1.Event {
	return v1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}, Message: message, Count: count,
		LastTimestamp: metav1.Now(),
	}
}

// heard returns the events since a time ago as "message xcount".
func (n *node) heard(t *testing.T, ago time.Duration) string {
	t.Helper()
	list, err := n.Events(context.Background(), time.Now().Add(-ago))
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, e := range list {
		out = append(out, fmt.Sprintf("%s x%d", e.Message, e.Count))
	}
	return strings.Join(out, ", ")
}

// past returns the steps of a pod's previous life, and when that was last heard of.
func (n *node) past(t *testing.T, name string, current types.UID) string {
	t.Helper()
	p, err := n.Previous(context.Background(), "ns", []string{name, name + "-node"}, current)
	if err != nil {
		t.Fatal(err)
	}
	if p == nil {
		return "none"
	}
	var steps []string
	for _, e := range p.Entries {
		steps = append(steps, e.Step)
	}
	return fmt.Sprintf("%s %s gone=%t %v", p.UID, p.Status, p.Gone, steps)
}

func (n *node) want(t *testing.T, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %.200q, want %q", what, got, want)
	}
}

func TestEventsOutliveTheAgent(t *testing.T) {
	play(t, 1<<20, func(t *testing.T, n *node) {
		n.Event(event("a", "started", 1))
		n.want(t, "not written yet", n.heard(t, time.Hour), "started x1")
		time.Sleep(time.Minute)
		n.Event(event("b", "failed", 1))
		time.Sleep(time.Minute)
		n.Event(event("b", "failed", 7))
		n.restart(1 << 20)
		n.want(t, "after a restart", n.heard(t, time.Hour), "started x1, failed x7")
		n.want(t, "of the last minute", n.heard(t, time.Minute), "failed x7")
		time.Sleep(time.Hour)
		n.want(t, "later", n.heard(t, time.Minute), "")
	})
}

func TestTimelinesOutliveTheAgent(t *testing.T) {
	play(t, 1<<20, func(t *testing.T, n *node) {
		n.step("web-1", "admit")
		time.Sleep(time.Minute)
		n.step("web-1", "sandbox")
		time.Sleep(time.Minute)
		n.want(t, "the present life", n.past(t, "web", "web-1"), "none")
		n.want(t, "the pod before", n.past(t, "web", "web-2"), "web-1 Running gone=false [admit sandbox]")
		n.step("web-1", "images")
		n.restart(1 << 20)
		n.want(t, "after a restart", n.past(t, "web", "web-1"), "web-1 Running gone=false [admit sandbox images]")
		n.step("web-1", "observe")
		n.End("web-1")
		n.line.Forget("web-1")
		n.want(t, "after its removal", n.past(t, "web", ""), "web-1 Running gone=true [observe]")
		n.step("web-1", "admit") // it comes back under its UID
		time.Sleep(time.Minute)
		n.want(t, "after its return", n.past(t, "web", "web-1"), "web-1 Running gone=true [observe]")
		n.want(t, "another pod", n.past(t, "other", ""), "none")
	})
}

// damage writes text to the end of the only file of the history, as a kill or a power loss leaves
// it.
func (n *node) damage(t *testing.T, text string) {
	t.Helper()
	list, err := n.segments.list()
	if err != nil || len(list) != 1 {
		t.Fatalf("%v, %v", list, err)
	}
	f, err := os.OpenFile(list[0].path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString(text); err != nil {
		t.Fatal(err)
	}
}

// A killed agent loses no more than the last seconds, and a torn line nothing else.
func TestTornLine(t *testing.T) {
	play(t, 1<<20, func(t *testing.T, n *node) {
		n.Event(event("a", "kept", 1))
		time.Sleep(time.Minute)
		n.damage(t, `{"at":"2026-01-01T00:00:00Z","event":{"mess`)
		n.restart(1 << 20)
		n.Event(event("b", "after", 1))
		time.Sleep(time.Minute)
		n.want(t, "after a torn line", n.heard(t, time.Hour), "kept x1, after x1")
	})
}

// The zeros that a power loss may leave in a file hide nothing that comes after them.
func TestZerosOfAPowerLoss(t *testing.T) {
	play(t, 8<<20, func(t *testing.T, n *node) {
		n.Event(event("a", "kept", 1))
		time.Sleep(time.Minute)
		n.damage(t, strings.Repeat("\x00", 2*maxLine)+"\n")
		n.Event(event("b", "after", 1))
		time.Sleep(time.Minute)
		n.want(t, "after a long line", n.heard(t, time.Hour), "kept x1, after x1")
	})
}

func TestBounds(t *testing.T) {
	const most = 64 << 10
	play(t, most, func(t *testing.T, n *node) {
		n.Event(event("old", "old", 1))
		for i := range 400 {
			time.Sleep(10 * time.Second)
			n.Event(event(fmt.Sprint(i), strings.Repeat("x", 1000), 1))
		}
		time.Sleep(time.Minute)
		total := int64(0)
		list, err := n.segments.list()
		for _, s := range list {
			total += s.size
		}
		if err != nil || total > most || total < most/2 {
			t.Errorf("%d bytes in %d files, want at most %d and not much less; %v", total, len(list), most, err)
		}
		if got := n.heard(t, 24*time.Hour); strings.Contains(got, "old") {
			t.Error("the oldest event is still there")
		}
		time.Sleep(30 * time.Hour)
		n.Event(event("new", "new", 1))
		time.Sleep(time.Minute)
		n.restart(most)
		n.Event(event("newer", "newer", 1))
		time.Sleep(time.Minute)
		n.want(t, "after a day", n.heard(t, 100*time.Hour), "new x1, newer x1")
	})
}

// What cannot be written is lost, and nothing else.
func TestDiskFaults(t *testing.T) {
	play(t, 1<<20, func(t *testing.T, n *node) {
		if err := os.WriteFile(n.dir, []byte("in the way"), 0o600); err != nil {
			t.Fatal(err)
		}
		n.Event(event("a", "lost", 1))
		time.Sleep(time.Minute)
		if _, err := n.Events(context.Background(), time.Time{}); err == nil {
			t.Error("a directory that is a file can be read")
		}
		if err := os.Remove(n.dir); err != nil {
			t.Fatal(err)
		}
		n.Event(event("b", "kept", 1))
		time.Sleep(time.Minute)
		n.want(t, "after a fault", n.heard(t, time.Hour), "kept x1")
		if info, err := os.Stat(n.dir); err != nil || info.Mode().Perm() != 0o700 {
			t.Errorf("the directory: %v, %v", info, err)
		}
	})
}

// A queue that nobody writes is bounded.
func TestQueue(t *testing.T) {
	n := &node{dir: t.TempDir()}
	n.Recorder = New(Config{Dir: n.dir, MaxBytes: 1 << 20, MaxAge: time.Hour}, Deps{Timeline: timeline.New()})
	for i := range 2 * maxQueue {
		n.Event(event(fmt.Sprint(i), "m", 1))
	}
	if len(n.queue) > maxQueue || n.queue[len(n.queue)-1].Event.Name != fmt.Sprint(2*maxQueue-1) {
		t.Errorf("%d in the queue", len(n.queue))
	}
}

func TestNobodyKeepsHistory(t *testing.T) {
	var r *Recorder
	r.Event(v1.Event{})
	r.End("u")
	events, err := r.Events(context.Background(), time.Time{})
	past, perr := r.Previous(context.Background(), "ns", nil, "")
	if len(events) > 0 || err != nil || past != nil || perr != nil {
		t.Errorf("%v, %v, %v, %v", events, err, past, perr)
	}
}

// BenchmarkEvent measures what an event costs the part that records it.
func BenchmarkEvent(b *testing.B) {
	r := New(Config{}, Deps{Timeline: timeline.New()})
	e := event("a", "m", 1)
	for b.Loop() {
		r.Event(e)
	}
}
