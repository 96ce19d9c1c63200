package fake

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/containerd/errdefs"
	"google.golang.org/protobuf/proto"

	"github.com/berthd/berth/cri"
)

// Call is one call of the runtime, as the journal keeps it.
type Call struct {
	// Seq numbers the calls in the order of their begin, from 1.
	Seq int
	// Method is the method's name, such as "RunPodSandbox".
	Method string
	// ID is the sandbox, container or image that the call is about. RunPodSandbox, CreateContainer
	// and PullImage have it once they have taken effect.
	ID string
	// Pod is the pod that the sandbox or container belongs to, where it is known.
	Pod cri.PodID
	// Container is the container's name, if the call has one. Attempt is the attempt of the
	// container or the sandbox.
	Container string
	Attempt   uint32
	// Request is a copy of the CRI request message.
	Request proto.Message
	// Begin is when the call came, End when it was answered. End is zero while the call is in
	// progress.
	Begin, End time.Time
	// Err is the error that the call was answered with.
	Err error

	conn *connection
}

// String returns the call on one line, without its times and ids.
func (c Call) String() string {
	s := c.Method
	if c.Pod.Name != "" {
		s += " " + c.Pod.Namespace + "/" + c.Pod.Name
	}
	if c.Container != "" {
		s += " " + c.Container
	}
	if c.Pod.Name != "" {
		s += fmt.Sprintf("#%d", c.Attempt)
	} else if c.ID != "" {
		s += " " + c.ID
	}
	if c.Err != nil {
		s += ": " + c.Err.Error()
	}
	return s
}

// flight is a call in progress.
type flight struct {
	conn   *connection
	cancel context.CancelCauseFunc
}

// Calls returns the journal: all calls of all connections since the start or the last
// [Runtime.ResetCalls], in the order in which they began. With methods it returns only the calls of
// those methods.
func (r *Runtime) Calls(methods ...string) []Call {
	r.node.mu.Lock()
	defer r.node.mu.Unlock()
	var calls []Call
	for _, c := range r.node.journal {
		if len(methods) == 0 || slices.Contains(methods, c.Method) {
			calls = append(calls, *c)
		}
	}
	return calls
}

// ResetCalls empties the journal. The numbers of calls go on, and faults keep their counts.
func (r *Runtime) ResetCalls() {
	r.node.mu.Lock()
	defer r.node.mu.Unlock()
	r.node.journal = nil
}

// call does what every call does: journal, connection, faults before, effect, faults after,
// journal.
func call[T any](ctx context.Context, r *Runtime, about Call, effect func(context.Context) (T, error)) (T, error) {
	n := r.node
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	entry, end := n.begin(r.conn, about, cancel)
	answer, err := func() (T, error) {
		var none T
		if err := n.passable(ctx, r.conn); err != nil {
			return none, err
		}
		hits := n.strike(entry)
		if err := suffer(ctx, hits, false); err != nil {
			return none, err
		}
		if err := n.passable(ctx, r.conn); err != nil {
			return none, err
		}
		answer, err := effect(ctx)
		if err != nil {
			return none, err
		}
		n.identify(entry, answer)
		if err := suffer(ctx, hits, true); err != nil {
			return none, err
		}
		return answer, n.passable(ctx, r.conn)
	}()
	if err != nil {
		err = fmt.Errorf("%s: %w", about.Method, err)
	}
	end(err)
	return answer, err
}

// do is [call] for methods that answer nothing.
func do(ctx context.Context, r *Runtime, about Call, effect func(context.Context) error) error {
	_, err := call(ctx, r, about, func(ctx context.Context) (struct{}, error) { return struct{}{}, effect(ctx) })
	return err
}

// begin writes a call into the journal; end writes its answer.
func (n *node) begin(conn *connection, about Call, cancel context.CancelCauseFunc) (entry *Call, end func(error)) {
	if about.Request != nil {
		about.Request = proto.Clone(about.Request)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.seq++
	about.Seq, about.Begin, about.conn = n.seq, time.Now(), conn
	if about.Pod == (cri.PodID{}) {
		n.describe(&about)
	}
	entry = &about
	n.journal = append(n.journal, entry)
	f := &flight{conn: conn, cancel: cancel}
	n.flights[f] = struct{}{}
	return entry, func(err error) {
		n.mu.Lock()
		defer n.mu.Unlock()
		delete(n.flights, f)
		entry.End, entry.Err = time.Now(), err
	}
}

// describe fills in the pod and container of the id that a call has. The caller holds the lock.
func (n *node) describe(c *Call) {
	if s := n.sandboxes[c.ID]; s != nil {
		c.Pod, c.Attempt = s.pod(), s.config.GetMetadata().GetAttempt()
	}
	if k := n.containers[c.ID]; k != nil {
		c.Pod, c.Container, c.Attempt = k.pod, k.config.GetMetadata().GetName(), k.config.GetMetadata().GetAttempt()
	}
}

// identify records the id that a call answered.
func (n *node) identify(entry *Call, answer any) {
	if id, ok := answer.(string); ok && entry.ID == "" {
		n.mu.Lock()
		defer n.mu.Unlock()
		entry.ID = id
	}
}

// passable returns an error if a connection cannot ask or be answered.
func (n *node) passable(ctx context.Context, conn *connection) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	n.mu.Lock()
	for conn.frozen != nil && !conn.severed {
		frozen := conn.frozen
		n.mu.Unlock()
		<-frozen
		n.mu.Lock()
	}
	defer n.mu.Unlock()
	switch {
	case conn.severed:
		return errSevered
	case n.down:
		return errDown
	}
	return nil
}

// The errors of calls whose connection or whose runtime has ended.
var (
	errSevered = errdefs.ErrUnavailable.WithMessage("the connection was severed")
	errDown    = errdefs.ErrUnavailable.WithMessage("connection error: the runtime is not running")
)
