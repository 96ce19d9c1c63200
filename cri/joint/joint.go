package joint

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/berthd/berth/cri"
	"github.com/berthd/berth/cri/internal/streams"
)

// Member is a runtime that takes part.
type Member struct {
	cri.Runtime
	// Name says in messages which runtime it is.
	Name string
	// Capabilities are what it does beyond the CRI.
	Capabilities cri.Capabilities
	// Observe, if set, is called after every call with the operation's name as in the label
	// operation_type of kubelet_runtime_operations, its duration, and its error. It is nil for a
	// runtime that reports its calls itself.
	Observe func(operation string, d time.Duration, err error)
	// Close ends the runtime.
	Close func()
}

// Members are the runtimes of a node.
type Members struct {
	// First makes all that is new.
	First *Member
	// Former has made sandboxes before; nil if there is no other runtime.
	Former *Member
}

// Config says which runtimes there are.
type Config struct {
	// Choose returns the runtimes. It is called again with the next call of the runtime after it
	// has failed, by one caller at a time. Its error is that of the call.
	Choose func(ctx context.Context) (Members, error)
	// Emptied is called once, when nothing is left in the former runtime, before it is closed.
	Emptied func() error
	// RequestTimeout bounds a choice for a call without a deadline. Zero is
	// [cri.DefaultRequestTimeout].
	RequestTimeout time.Duration
	// Logger gets what no caller learns. Nil discards.
	Logger *slog.Logger
}

// Runtime is one runtime of up to two. Make one with [New], end it with [Runtime.Close].
type Runtime struct {
	cfg    Config
	chosen atomic.Pointer[pair]
	// turn is held by the one who chooses.
	turn    chan struct{}
	streams *streams.Group
}

var _ cri.Runtime = (*Runtime)(nil)

// New returns a runtime that is not chosen yet.
func New(cfg Config) *Runtime {
	if cfg.RequestTimeout <= 0 {
		cfg.RequestTimeout = cri.DefaultRequestTimeout
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &Runtime{cfg: cfg, turn: make(chan struct{}, 1), streams: streams.New()}
}

// Close ends the event streams, and closes the runtimes that were chosen. Later calls fail. Closing
// twice is allowed.
func (r *Runtime) Close() {
	r.streams.Close()
	r.turn <- struct{}{}
	defer func() { <-r.turn }()
	if p := r.chosen.Swap(&pair{}); p != nil {
		p.close()
	}
}

// pair returns the runtimes, and chooses them if that has not been done.
func (r *Runtime) pair(ctx context.Context) (*pair, error) {
	if p := r.chosen.Load(); p != nil {
		return p, p.usable()
	}
	if _, has := ctx.Deadline(); !has {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, r.cfg.RequestTimeout)
		defer cancel()
	}
	select {
	case r.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for the choice of the container runtime: %w", ctx.Err())
	}
	defer func() { <-r.turn }()
	if p := r.chosen.Load(); p != nil {
		return p, p.usable()
	}
	members, err := r.cfg.Choose(ctx)
	if err != nil {
		return nil, err
	}
	p := &pair{first: members.First, former: members.Former}
	if err := p.load(ctx); err != nil {
		p.close()
		return nil, err
	}
	r.chosen.Store(p)
	if p.empty() {
		r.leave(ctx, p)
	}
	return p, nil
}

// leave closes the former runtime if nothing is left in it and nobody just calls it.
func (r *Runtime) leave(ctx context.Context, p *pair) {
	former, err := p.leave(ctx, r.cfg.Emptied)
	if err != nil {
		r.cfg.Logger.Warn("the runtime of before is empty, and that could not be noted yet", "error", err)
		return
	}
	if former == nil {
		return
	}
	r.cfg.Logger.Info("nothing is left in the runtime of before: it is not used any more", "runtime", former.Name)
	former.Close()
}
