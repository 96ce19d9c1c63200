package steps

import (
	"context"
	"errors"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berthd/berth/agent/pod/plan"
)

// claimed has the claims of one pod.
type claimed struct {
	wants, held bool
	err         error
	// until, if set, is what an operation waits for.
	until chan struct{}
	calls []string
}

func (c *claimed) Wants(*v1.Pod) bool   { return c.wants }
func (c *claimed) Held(*v1.Pod) bool    { return c.held }
func (c *claimed) Holds(types.UID) bool { return c.held }

func (c *claimed) Prepare(ctx context.Context, pod *v1.Pod) error {
	c.calls = append(c.calls, "prepare "+string(pod.UID))
	if c.until != nil {
		<-ctx.Done()
		return ctx.Err()
	}
	c.held = c.err == nil
	return c.err
}

func (c *claimed) Unprepare(_ context.Context, uid types.UID) error {
	c.calls = append(c.calls, "unprepare "+string(uid))
	c.held = c.err != nil
	return c.err
}

// claimsBench is a sync of a pod with claims.
type claimsBench struct {
	*claimed
	t      *testing.T
	p      *Sync
	events eventLog
}

func newClaimsBench(t *testing.T, c *claimed, creates bool) *claimsBench {
	b := &claimsBench{claimed: c, t: t, p: syncOf(t)}
	b.p.Actions = plan.Actions{CreateSandbox: creates}
	return b
}

// next begins another sync after the tasks of the last one.
func (b *claimsBench) next() {
	b.p.Tasks.Wait()
	Collect(b.p)
}

func (b *claimsBench) step() Claims { return Claims{Manager: b.claimed, Events: &b.events} }

func (b *claimsBench) ensures(waits, halts bool) {
	b.t.Helper()
	out, err := b.step().Ensure(b.t.Context(), b.p)
	if err != nil || out.Halt != halts || (out.Waiting != "") != waits {
		b.t.Errorf("%+v, %v", out, err)
	}
}

// A pod waits for its claims before each sandbox, and goes on with the sandbox in the sync that
// follows. On the way down it has not ended before its claims are given back.
func TestClaims(t *testing.T) {
	b := newClaimsBench(t, &claimed{wants: true}, true)
	for range 2 {
		Collect(b.p)
		b.ensures(true, true)
		b.next()
		b.ensures(false, false)
	}
	Collect(b.p)
	b.p.Actions.CreateSandbox = false
	b.ensures(false, false)
	if out, err := b.step().Remove(t.Context(), b.p); err != nil || !out.Halt || out.Waiting == "" {
		t.Errorf("%+v, %v", out, err)
	}
	b.next()
	if out, err := b.step().Remove(t.Context(), b.p); err != nil || out.Halt || len(b.events) > 0 {
		t.Errorf("%+v, %v, %q", out, err, b.events)
	}
	if got := strings.Join(b.calls, ", "); got != "prepare uid, prepare uid, unprepare uid" {
		t.Error(got)
	}
}

// A failure is an event in the kubelet's words and is tried again. It holds back only a pod that
// has no sandbox yet.
func TestClaimsFail(t *testing.T) {
	for _, creates := range []bool{true, false} {
		b := newClaimsBench(t, &claimed{wants: true, err: errors.New("prepare dynamic resources: no power")}, creates)
		Collect(b.p)
		b.ensures(true, creates)
		b.next()
		out, err := b.step().Ensure(t.Context(), b.p)
		if (err != nil) != creates || out.Halt || out.RetryAt.IsZero() != creates {
			t.Errorf("%+v, %v", out, err)
		}
		const want = "Warning FailedPrepareDynamicResources Failed to prepare dynamic resources: " +
			"prepare dynamic resources: no power"
		if len(b.events) != 1 || b.events[0] != want {
			t.Errorf("%q", b.events)
		}
		Collect(b.p)
		b.err = nil
		b.ensures(true, creates)
		b.next()
		b.ensures(false, false)
		b.err = errors.New("busy")
		if out, err := b.step().Remove(t.Context(), b.p); err != nil || !out.Halt {
			t.Errorf("%+v, %v", out, err)
		}
		b.next()
		if out, err := b.step().Remove(t.Context(), b.p); !errors.Is(err, b.err) || out.Halt {
			t.Errorf("%+v, %v", out, err)
		}
	}
}

// A pod that is deleted while a driver hangs does not wait for the driver. A pod without claims
// asks for nothing.
func TestClaimsOfAPodThatEnds(t *testing.T) {
	b := newClaimsBench(t, &claimed{wants: true, until: make(chan struct{})}, true)
	Collect(b.p)
	b.ensures(true, true)
	if out, err := b.step().Remove(t.Context(), b.p); err != nil || out.Halt || b.p.Tasks.Has(prepareTask) {
		t.Errorf("%+v, %v", out, err)
	}
	b = newClaimsBench(t, &claimed{}, true)
	b.ensures(false, false)
	if _, err := b.step().Remove(t.Context(), b.p); err != nil || len(b.calls) > 0 {
		t.Errorf("%v, %q", err, b.calls)
	}
}
