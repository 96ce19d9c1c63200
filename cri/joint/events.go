package joint

import (
	"context"
	"errors"
	"fmt"

	"github.com/berthd/berth/cri"
	"github.com/berthd/berth/cri/internal/streams"
)

// Events implements [cri.Runtime]. The stream breaks when that of either runtime does, and when the
// former runtime is left.
func (r *Runtime) Events(ctx context.Context) (<-chan cri.Event, error) {
	p, err := r.pair(ctx)
	if err != nil {
		return nil, err
	}
	p.calls.RLock()
	former := p.former
	p.calls.RUnlock()
	if former == nil {
		return p.first.Events(ctx)
	}
	subscribed := make(chan struct{})
	read := func(ctx context.Context, box *streams.Mailbox) error {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		first, err := p.first.Events(ctx)
		if err != nil {
			return fmt.Errorf("subscribe to the events of %s: %w", p.first.Name, err)
		}
		second, err := former.Events(ctx)
		if err != nil {
			return fmt.Errorf("subscribe to the events of %s: %w", former.Name, err)
		}
		close(subscribed)
		for {
			var event cri.Event
			var open bool
			select {
			case event, open = <-first:
			case event, open = <-second:
			}
			if !open {
				return errors.New("the event stream of a runtime has ended")
			}
			box.Put(event)
		}
	}
	return r.streams.Open(ctx, read, func(ctx context.Context, broken <-chan error) error {
		select {
		case <-subscribed:
			return nil
		case err := <-broken:
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	})
}
