package tokens

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/berthd/berth/agent/cluster/kube"
	"github.com/berthd/berth/internal/pods"
	"github.com/berthd/berth/internal/retry"
)

// A token is replaced after this part of its life, or after longest. It is replaced up to jitter
// earlier, so that the tokens of one deployment are not all replaced at the same moment. The values
// are the kubelet's.
const (
	oldAt   = 0.8
	longest = 24 * time.Hour
	jitter  = 10 * time.Second
)

const (
	// refreshDelay is the longest wait after a failure to replace a token.
	refreshDelay = time.Minute
	// nap is the longest time between two looks at the clock, because the machine may have been
	// suspended.
	nap = 5 * time.Minute
	// leastLife is the shortest time to keep a token. The API server issues no token for less than
	// ten minutes.
	leastLife = time.Minute
)

// token is what the API server issued.
type token struct {
	text    string
	expires time.Time
	// got is when the token came. life is how long it is valid from then on, and refresh after how
	// long to request the next one. So neither the API server's clock nor a change of this node's
	// clock matters.
	got           time.Time
	life, refresh time.Duration
}

// age returns how long ago the token came: by the monotonic clock, or by the wall clock if that
// shows more, as it does after a suspension.
func (t *token) age(now time.Time) time.Duration {
	return max(now.Sub(t.got), now.Round(0).Sub(t.got.Round(0)))
}

// String keeps the token out of logs and messages.
func (t token) String() string { return fmt.Sprintf("a token until %s", t.expires) }

// GoString keeps the token out of logs and messages, too.
func (t token) GoString() string { return t.String() }

// keep gets a token, and the next one before it is old, until ctx ends.
func (m *Manager) keep(ctx context.Context, e *entry) {
	for failures := 0; ; {
		next, err := m.ask(ctx, e)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			m.failed(e, err, failures)
			if !m.deps.Ready(ctx, err) || !retry.Sleep(ctx, m.delay(e, failures+1)) {
				return
			}
			failures++
			continue
		}
		failures = 0
		m.mu.Lock()
		e.token, e.err = next, nil
		m.mu.Unlock()
		m.deps.Wake(e.pod.UID)
		if !await(ctx, next) {
			return
		}
	}
}

// await waits until a token is old, and reports whether ctx lasted.
func await(ctx context.Context, t *token) bool {
	if !retry.Sleep(ctx, leastLife) {
		return false
	}
	for left := t.refresh - t.age(time.Now()); left > 0; left = t.refresh - t.age(time.Now()) {
		if !retry.Sleep(ctx, min(left, nap)) {
			return false
		}
	}
	return true
}

// ask requests a token that is bound to the pod from the API server, once it is the pod's turn.
func (m *Manager) ask(ctx context.Context, e *entry) (*token, error) {
	ask := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		BoundObjectRef: &authenticationv1.BoundObjectReference{
			APIVersion: "v1",
			Kind:       "Pod",
			Name:       e.pod.Name,
			UID:        e.pod.UID,
		},
	}}
	if e.audience != "" {
		ask.Spec.Audiences = []string{e.audience}
	}
	if e.seconds != 0 {
		ask.Spec.ExpirationSeconds = &e.seconds
	}
	turn := m.turns.Queue(e.pod.UID)
	defer turn.End()
	if err := turn.Wait(ctx); err != nil {
		return nil, err
	}
	got, err := m.issue(ctx, e.pod.Namespace, e.pod.Spec.ServiceAccountName, ask)
	if err != nil {
		return nil, err
	}
	if got.Status.Token == "" {
		return nil, errors.New("the API server's answer holds no token")
	}
	t := &token{text: got.Status.Token, expires: got.Status.ExpirationTimestamp.Time, got: time.Now()}
	t.life = t.expires.Sub(t.got)
	if got.Spec.ExpirationSeconds != nil {
		t.life = time.Duration(*got.Spec.ExpirationSeconds) * time.Second
	}
	t.refresh = refreshAfter(t.life) - rand.N(jitter)
	return t, nil
}

// refreshAfter returns after how long a token with that life is old.
func refreshAfter(life time.Duration) time.Duration {
	return min(time.Duration(float64(life)*oldAt), longest)
}

// failed records an error, and wakes the pod for the first one. The very first refusal is not
// reported: the API server may learn a moment later than the node that the pod is here.
func (m *Manager) failed(e *entry, err error, failures int) {
	m.mu.Lock()
	reported := e.err != nil || e.token != nil
	if failures > 0 || !apierrors.IsForbidden(err) {
		e.err = err
	}
	report := e.err != nil && !reported
	renewing := e.token != nil
	m.mu.Unlock()
	if renewing && failures == 0 {
		m.deps.Logger.Warn("a pod's token cannot be renewed; it keeps the one that it has until that ends",
			"pod", pods.FullName(e.pod), "account", e.account(), "err", err)
	}
	if report {
		m.deps.Wake(e.pod.UID)
	}
}

// delay is how long to wait after so many failures in a row.
func (m *Manager) delay(e *entry, failures int) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	b := kube.Retry
	if e.token != nil && e.token.life-e.token.age(time.Now()) > 2*refreshDelay {
		b.Most = refreshDelay
	}
	return b.Delay(failures, e.err)
}
