package fake

import (
	"context"
	"time"

	"github.com/containerd/errdefs"
)

// Fault is something that happens to a call. Delay comes first, then Crash, then Hang, then Err. A fault without any of Crash, Hang, Err is
// only slow.
type Fault struct {
	// Method is the method's name; empty for any.
	Method string
	// Match, if not nil, says which calls of the method count. It is called with the node's lock held and must not call the fake.
	Match func(Call) bool
	// Nth is which of the calls that count is hit, from 1; 0 for every one.
	Nth int
	// After makes it happen when the call took effect, so that the effect is there and its answer is lost; else it happens before, and instead of,
	// the effect (but a fault that is only slow lets it go on). A call that fails by itself suffers nothing after.
	After bool

	// Delay is how long the call is held up.
	Delay time.Duration
	// Crash is called in the calling goroutine, as if the agent were killed there: it must end the call's context, or [Runtime.Sever] the connection,
	// because the call is never answered otherwise.
	Crash func()
	// Hang holds the call until its context ends or the fault is removed; the call then goes on.
	Hang bool
	// Err is what the call is answered. errdefs classes are what callers tell apart.
	Err error
}

// plantedFault is a fault and its count; guarded by the node's lock but for removed.
type plantedFault struct {
	Fault
	seen    int
	removed chan struct{}
	gone    bool
}

// Inject plants a fault and returns what removes it. Removing it lets the calls go on that hang by it.
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

// strike returns the faults that hit a call.
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

// suffer makes a call suffer the faults that hit it at this point.
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

// Freeze holds back every answer to this connection, and every call that has not taken effect, until it is severed: the moment between an agent's last word and
// its death, in which a test can take away what else it has.
func (r *Runtime) Freeze() {
	r.node.mu.Lock()
	defer r.node.mu.Unlock()
	if r.conn.frozen == nil {
		r.conn.frozen = make(chan struct{})
	}
}

// Sever ends this connection as the agent's death does: calls under way are answered by an error of class Unavailable (what they
// did already stays done), later ones have no effect, and its event streams end. Other connections do not notice.
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

// Stop stops the runtime's daemon: every call, also those under way, is answered by an error of class Unavailable, and event streams end. Containers
// keep running, and what happens to them meanwhile is told by no event. Start starts it again.
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

// ErrLostAnswer is an Err for a [Fault]: what a caller sees when the connection broke.
var ErrLostAnswer = errdefs.ErrUnavailable.WithMessage("error reading from server: EOF")
