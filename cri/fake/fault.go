package fake

import (
	"context"
	"time"

	"github.com/containerd/errdefs"
)

// Fault is something that happens to a call. Delay comes first, then Crash, then Hang, then Err. A
// fault without Crash, Hang and Err only makes the call slow.
type Fault struct {
	// Method is the method's name. If it is empty, every method counts.
	Method string
	// Match, if not nil, reports whether a call of the method counts. It is called with the node's
	// lock held, and must not call the fake.
	Match func(Call) bool
	// Nth is which of the calls that count has the fault, from 1. With 0 every one has it.
	Nth int
	// After makes the fault happen after the call took effect, so that only the answer is lost.
	// Without After, the fault happens instead of the effect; only a fault that makes the call slow
	// lets the effect happen. A call that fails by itself has no fault after it.
	After bool

	// Delay is how long the call is delayed.
	Delay time.Duration
	// Crash is called in the calling goroutine, as if the agent were killed there. It must end the
	// call's context or [Runtime.Sever] the connection, because otherwise the call never gets an
	// answer.
	Crash func()
	// Hang holds the call until its context ends or the fault is removed. The call then goes on.
	Hang bool
	// Err is the answer of the call. Callers distinguish the classes of errdefs.
	Err error
}

// plantedFault is a fault and its count. The node's lock guards everything but removed.
type plantedFault struct {
	Fault
	seen    int
	removed chan struct{}
	gone    bool
}

// Inject adds a fault and returns a function that removes it. The calls that hang because of the
// fault then go on.
func (r *Runtime) Inject(f Fault) (remove func()) {
	p := &plantedFault{Fault: f, removed: make(chan struct{})}
	n := r.node
	n.mu.Lock()
	defer n.mu.Unlock()
	n.faults = append(n.faults, p)
	return func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		if !p.gone {
			p.gone = true
			close(p.removed)
		}
	}
}

// ClearFaults removes every fault.
func (r *Runtime) ClearFaults() {
	n := r.node
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, p := range n.faults {
		if !p.gone {
			p.gone = true
			close(p.removed)
		}
	}
	n.faults = nil
}

// strike returns the faults of a call.
func (n *node) strike(c *Call) []*plantedFault {
	n.mu.Lock()
	defer n.mu.Unlock()
	var hits []*plantedFault
	for _, p := range n.faults {
		if p.gone || p.Method != "" && p.Method != c.Method || p.Match != nil && !p.Match(*c) {
			continue
		}
		p.seen++
		if p.Nth == 0 || p.Nth == p.seen {
			hits = append(hits, p)
		}
	}
	return hits
}

// suffer applies the faults of a call at this point.
func suffer(ctx context.Context, hits []*plantedFault, after bool) error {
	for _, p := range hits {
		if p.After != after {
			continue
		}
		if err := p.strike(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (p *plantedFault) strike(ctx context.Context) error {
	if err := sleep(ctx, p.Delay); err != nil {
		return err
	}
	if p.Crash != nil {
		p.Crash()
		<-ctx.Done()
		return context.Cause(ctx)
	}
	if p.Hang {
		select {
		case <-p.removed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return p.Err
}

// Freeze holds back every answer to this connection, and every call that has not taken effect,
// until the connection is severed. It gives a test time between an agent's last action and its
// death, to take away what else the agent has.
func (r *Runtime) Freeze() {
	r.node.mu.Lock()
	defer r.node.mu.Unlock()
	if r.conn.frozen == nil {
		r.conn.frozen = make(chan struct{})
	}
}

// Sever ends this connection as the agent's death does. Calls in progress get an error of class
// Unavailable, and keep the effects that they had. Later calls have no effect, and the connection's
// event streams end. Other connections go on.
func (r *Runtime) Sever() {
	n := r.node
	n.mu.Lock()
	defer n.mu.Unlock()
	if r.conn.frozen != nil && !r.conn.severed {
		close(r.conn.frozen)
	}
	r.conn.severed = true
	for f := range n.flights {
		if f.conn == r.conn {
			f.cancel(errSevered)
		}
	}
	for s := range n.streams {
		if s.conn == r.conn {
			n.closeStream(s)
		}
	}
}

// Connect returns another connection to the same node.
func (r *Runtime) Connect() *Runtime {
	return &Runtime{node: r.node, conn: &connection{}}
}

// Stop stops the runtime's daemon. Every call, also a call in progress, gets an error of class
// Unavailable, and event streams end. Containers keep running, and no event reports what happens to
// them meanwhile. Start starts the daemon again.
func (r *Runtime) Stop() {
	n := r.node
	n.mu.Lock()
	defer n.mu.Unlock()
	n.down = true
	for f := range n.flights {
		f.cancel(errDown)
	}
	for s := range n.streams {
		n.closeStream(s)
	}
}

// Start starts the runtime's daemon after [Runtime.Stop].
func (r *Runtime) Start() {
	r.node.mu.Lock()
	defer r.node.mu.Unlock()
	r.node.down = false
}

// Restart stops the runtime's daemon and starts it again after d.
func (r *Runtime) Restart(d time.Duration) {
	r.Stop()
	time.AfterFunc(d, r.Start)
}

// ErrLostAnswer is an Err for a [Fault]. It is the error that a caller gets when the connection
// breaks.
var ErrLostAnswer = errdefs.ErrUnavailable.WithMessage("error reading from server: EOF")
