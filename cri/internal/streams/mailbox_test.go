package streams

import (
	"context"
	"slices"
	"testing"

	"github.com/berthd/berth/cri"
)

func TestMailboxKeepsOrderAndDropsDoubles(t *testing.T) {
	box := newMailbox()
	put := []cri.Event{
		{Type: cri.ContainerStarted, ID: "a"},
		{Type: cri.ContainerStopped, ID: "a"},
		{Type: cri.ContainerStarted, ID: "b"},
	}
	for range 3 {
		for _, e := range put {
			box.Put(e)
		}
	}
	var got []cri.Event
	for range put {
		e, ok := box.take(t.Context())
		if !ok {
			t.Fatal("the box is closed")
		}
		got = append(got, e)
	}
	if !slices.Equal(got, put) {
		t.Errorf("got %v, want %v", got, put)
	}
	box.Put(cri.Event{Type: cri.ContainerStopped, ID: "a", Exit: &cri.Exit{Code: 1}})
	box.Put(cri.Event{Type: cri.ContainerStopped, ID: "a"})
	if e, ok := box.take(t.Context()); !ok || e.Exit != nil {
		t.Errorf("got %v, want the later of two", e)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if e, ok := box.take(ctx); ok {
		t.Errorf("got %v from an empty box", e)
	}
	box.close()
	if e, ok := box.take(t.Context()); ok {
		t.Errorf("got %v from a closed box", e)
	}
}
