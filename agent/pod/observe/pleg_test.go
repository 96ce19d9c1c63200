package observe

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/berthd/berth/cri"
	"github.com/berthd/berth/cri/fake"
)

// nobody has no workers and takes nothing in.
type nobody struct{}

func (nobody) Wake(types.UID)                             {}
func (nobody) Has(types.UID) bool                         { return false }
func (nobody) Listed(map[types.UID]*Listed)               {}
func (nobody) TakeIn(context.Context, types.UID, *Listed) {}

// Events about unknown things must not delay the events behind them, and must not each lead to a
// listing of everything.
func TestUnknownEventsAreListedTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := fake.New(fake.Config{})
		rt.Inject(fake.Fault{Method: "ListPodSandbox", Delay: time.Second})
		p := NewPLEG(PLEGConfig{Relist: time.Hour}, PLEGDeps{
			Runtime:   rt,
			Observer:  New(rt),
			Workers:   nobody{},
			Unclaimed: nobody{},
			Logger:    slog.New(slog.DiscardHandler),
		})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- p.Relists(ctx) }()
		begin := time.Now()
		for range 2 {
			events := make(chan cri.Event, 500)
			for i := range cap(events) {
				events <- cri.Event{Type: cri.ContainerStarted, ID: fmt.Sprint("unknown", i)}
			}
			close(events)
			p.follow(ctx, events)
			synctest.Wait()
		}
		if held := time.Since(begin); held != 0 {
			t.Errorf("the draining was held up for %s", held)
		}
		time.Sleep(time.Minute)
		if n := len(rt.Calls("ListPodSandbox")); n != 2 {
			t.Errorf("everything was listed %d times, want once and once more", n)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
