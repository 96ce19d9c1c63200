package tokens

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/berthd/berth/agent/cluster"
	"github.com/berthd/berth/agent/tasks"
)

// A token is replaced when this part of its life is over, or after longest, and up to jitter earlier so that those of one deployment are not all replaced
// at once: the kubelet's numbers.
const (
	oldAt   = 0.8
	longest = 24 * time.Hour
	jitter  = 10 * time.Second
)

const (
	// refreshDelay is how long a pod that has a token may wait after failures to get another.
	refreshDelay = time.Minute
	// nap is the longest time after which the clock is looked at again: it may have been set meanwhile.
	nap = 5 * time.Minute
	// leastLife is how long a token is kept whatever the clock says. The API server issues none for less than ten minutes.
	leastLife = time.Minute
)

// token is what the API server issued.
type token struct {
	text    string
	expires time.Time
	// refresh is when to ask for the next.
	refresh time.Time
}

// String keeps the token out of logs and messages.
func (t token) String() string { return fmt.Sprintf("a token until %s", t.expires) }

// GoString does the same.
func (t token) GoString() string { return t.String() }

// keep has a token issued, and another before it is old, until ctx ends.
func (m *Manager) keep(ctx context.Context, e *entry) {
	for failures := 0; ; {
		next, err := m.ask(ctx, e)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			m.failed(e, err, failures)
			if !m.deps.Ready(ctx, err) || !tasks.Sleep(ctx, m.delay(e, failures+1)) {
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
		if !await(ctx, next.refresh) {
			return
		}
	}
}

// await waits until a token is old, by a clock that may be set meanwhile, and reports whether ctx let it. A clock that is wrong does not make it ask all the time.
func await(ctx context.Context, refresh time.Time) bool {
	if !tasks.Sleep(ctx, leastLife) {
		return false
	}
	for left := time.Until(refresh); left > 0; left = time.Until(refresh) {
		if !tasks.Sleep(ctx, min(left, nap)) {
			return false
		}
	}
	return true
}

// ask asks the API server for a token that is bound to the pod.
func (m *Manager) ask(ctx context.Context, e *entry) (*token, error) {
	ask := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		BoundObjectRef: &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: e.pod.Name, UID: e.pod.UID},
	}}
	if e.audience != "" {
		ask.Spec.Audiences = []string{e.audience}
	}
	if e.seconds != 0 {
		ask.Spec.ExpirationSeconds = &e.seconds
	}
	got, err := m.issue(ctx, e.pod.Namespace, e.pod.Spec.ServiceAccountName, ask)
	if err != nil {
		return nil, err
	}
	if got.Status.Token == "" {
		return nil, errors.New("the API server's answer holds no token")
	}
	t := &token{text: got.Status.Token, expires: got.Status.ExpirationTimestamp.Time}
	life := time.Until(t.expires)
	if got.Spec.ExpirationSeconds != nil {
		life = time.Duration(*got.Spec.ExpirationSeconds) * time.Second
	}
	t.refresh = refreshAt(t.expires, life).Add(-rand.N(jitter))
	return t, nil
}

// refreshAt returns when a token is old. life is how long the API server has made it good for.
func refreshAt(expires time.Time, life time.Duration) time.Time {
	return expires.Add(-life).Add(min(time.Duration(float64(life)*oldAt), longest))
}

// failed takes note of an error, and tells the pod of the first. The very first refusal is not told: the server may learn a moment later than the node that the
// pod is here.
func (m *Manager) failed(e *entry, err error, failures int) {
	m.mu.Lock()
	told := e.err != nil || e.token != nil
	if failures > 0 || !apierrors.IsForbidden(err) {
		e.err = err
	}
	tell := e.err != nil && !told
	renewing := e.token != nil
	m.mu.Unlock()
	if renewing && failures == 0 {
		m.deps.Logger.Warn("a pod's token cannot be renewed; it keeps the one that it has until that ends", "pod", e.pod.Namespace+"/"+e.pod.Name, "account", e.account(), "err", err)
	}
	if tell {
		m.deps.Wake(e.pod.UID)
	}
}

// delay is how long to wait after so many failures in a row.
func (m *Manager) delay(e *entry, failures int) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	b := cluster.Retry
	if e.token != nil && time.Until(e.token.expires) > 2*refreshDelay {
		b.Most = refreshDelay
	}
	return b.Delay(failures, e.err)
}
