// Package lifecycle runs the long-running parts of a program: started in order, stopped and joined
// in reverse.
//
// Purpose: every goroutine has a parent that joins it. While a part stops, the parts that were
// started before it still run, so the part still has everything that it needs.
//
// Truth owned: none. Concurrency: [Run] returns when every part has returned.
package lifecycle

import (
	"context"
	"errors"
	"fmt"
)

// Loop is a long-running part. Run returns nil after its context has ended; an error before that
// ends the program.
type Loop struct {
	Name string
	Run  func(context.Context) error
}

// Idle is the run of a loop that has nothing to do.
func Idle(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

// Run starts the loops in order and returns after ctx has ended, or a loop has failed, and all
// loops have been stopped in reverse order. The error names the loops that failed.
func Run(ctx context.Context, loops []Loop) error {
	started := make([]*running, 0, len(loops))
	failed := make(chan error, len(loops))
	for _, l := range loops {
		started = append(started, start(l, failed))
	}
	var err error
	select {
	case <-ctx.Done():
	case err = <-failed:
	}
	for i := len(started) - 1; i >= 0; i-- {
		err = errors.Join(err, started[i].stop())
	}
	return err
}

// running is a loop that was started.
type running struct {
	name   string
	cancel context.CancelFunc
	done   chan error
}

func start(l Loop, failed chan<- error) *running {
	ctx, cancel := context.WithCancel(context.Background())
	r := &running{name: l.Name, cancel: cancel, done: make(chan error, 1)}
	go func() {
		err := l.Run(ctx)
		if err != nil && ctx.Err() == nil {
			failed <- fmt.Errorf("%s: %w", l.Name, err)
			err = nil // it is reported
		}
		r.done <- err
	}()
	return r
}

// stop ends the loop and joins it.
func (r *running) stop() error {
	r.cancel()
	if err := <-r.done; err != nil && !errors.Is(err, context.Canceled) {
		return fmt.Errorf("stopping %s: %w", r.name, err)
	}
	return nil
}

// Beside starts run beside the caller. stop ends and joins it.
func Beside(ctx context.Context, run func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = run(ctx) // it returns because its context has ended
	}()
	return func() {
		cancel()
		<-done
	}
}
