package kube

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"

	"github.com/berthd/berth/internal/retry"
)

const (
	// readyTimeout is how long the API server may take to answer whether it is ready.
	readyTimeout = 5 * time.Second
	// readyFirst and readyMost limit the wait before the API server is asked again. The wait
	// doubles each time.
	readyFirst = 100 * time.Millisecond
	readyMost  = 2 * time.Second
	// readyRefusals is how often in a row the API server may refuse to answer, about half a minute.
	// It refuses before it has read its authorization rules. An API server that still refuses
	// afterwards has other rules, and counts as ready.
	readyRefusals = 15
)

// Ready waits until the API server is back. An API server that has just started answers before it
// knows which objects a node's pods refer to. Until then it refuses those objects to the node. If
// several callers wait, one of them asks.
type Ready struct {
	server rest.Interface

	mu    sync.Mutex
	round *round
}

// round is one caller's asking. ok says, after done is closed, whether the server is ready.
type round struct {
	done chan struct{}
	ok   bool
}

// NewReady returns a Ready of the API server behind a client of any group.
func NewReady(server rest.Interface) *Ready { return &Ready{server: server} }

// After waits, after a request that failed with err, until the API server is ready, and reports
// whether it is. It does not wait if err is an answer of the API server. It ends with ctx.
func (r *Ready) After(ctx context.Context, err error) bool {
	var answer apierrors.APIStatus
	if err == nil || errors.As(err, &answer) {
		return true
	}
	for ctx.Err() == nil {
		r.mu.Lock()
		others := r.round
		if others == nil {
			mine := &round{done: make(chan struct{})}
			r.round = mine
			r.mu.Unlock()
			mine.ok = r.ask(ctx)
			r.mu.Lock()
			r.round = nil
			r.mu.Unlock()
			close(mine.done)
			return mine.ok
		}
		r.mu.Unlock()
		select {
		case <-ctx.Done():
		case <-others.done:
			if others.ok {
				return true
			}
		}
	}
	return false
}

// Back waits, after a request that failed with err, for an API server that is away. It reports
// whether the API server came back before ctx ended. If the API server is not away, the failure has
// another reason, and Back returns false at once.
func (r *Ready) Back(ctx context.Context, err error) bool {
	var answer apierrors.APIStatus
	if err == nil || errors.As(err, &answer) || there(r.once(ctx)) {
		return false
	}
	for retry.Sleep(ctx, readyMost) {
		if there(r.once(ctx)) {
			return true
		}
	}
	return false
}

// there reports, from the answer to the readiness request, whether the API server is ready or does
// not know the request. An API server that refuses the request has not read its authorization rules
// yet.
func there(err error) bool {
	var answer apierrors.APIStatus
	return err == nil ||
		errors.As(err, &answer) && answer.Status().Code < http.StatusInternalServerError &&
			!apierrors.IsForbidden(err) && !apierrors.IsUnauthorized(err)
}

// once asks whether the API server is ready.
func (r *Ready) once(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	return r.server.Get().AbsPath("/readyz").MaxRetries(0).Do(ctx).Error()
}

// ask asks until the API server is ready, or ctx ends.
func (r *Ready) ask(ctx context.Context) bool {
	backoff := retry.Backoff{First: readyFirst, Most: readyMost}
	refusals := 0
	for failures := 1; ; failures++ {
		err := r.once(ctx)
		var answer apierrors.APIStatus
		switch {
		case err == nil:
			return true
		case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err):
			if refusals++; refusals >= readyRefusals {
				return true
			}
		case errors.As(err, &answer) && answer.Status().Code < http.StatusInternalServerError:
			return true // the API server does not know the path
		}
		if !backoff.Wait(ctx, failures) {
			return false
		}
	}
}
