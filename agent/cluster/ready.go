package cluster

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"

	"github.com/berthd/berth/agent/tasks"
)

const (
	// readyTimeout is how long the API server may take to say whether it is ready.
	readyTimeout = 5 * time.Second
	// readyFirst and readyMost bound how long is waited before it is asked again, twice as long each time.
	readyFirst = 100 * time.Millisecond
	readyMost  = 2 * time.Second
	// readyRefusals is how often in a row it may refuse to say so, half a minute's worth: it does before it has read the rules by which it is allowed. One that
	// goes on has other rules, and is taken for ready.
	readyRefusals = 15
)

// Ready waits out the API server's absences. One that has just started answers before it knows which objects a node's pods refer to, and refuses them to the
// node until then. However many wait, one of them asks.
type Ready struct {
	server rest.Interface

	mu    sync.Mutex
	round *round
}

// round is one waiter's asking. ok says, once done is closed, that the server is ready.
type round struct {
	done chan struct{}
	ok   bool
}

// NewReady returns a Ready of the API server behind a client of any group.
func NewReady(server rest.Interface) *Ready { return &Ready{server: server} }

// After waits, after a request that failed with err, until the API server is ready, and reports whether it is. It does not wait where err is the API server's own
// answer, and ends with ctx.
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

// Back waits, after a request that failed with err, for an API server that is away, and reports whether it has come back before ctx ended. One that is not away, so that
// there is another reason for the failure, does not come back.
func (r *Ready) Back(ctx context.Context, err error) bool {
	var answer apierrors.APIStatus
	if err == nil || errors.As(err, &answer) || there(r.once(ctx)) {
		return false
	}
	for tasks.Sleep(ctx, readyMost) {
		if there(r.once(ctx)) {
			return true
		}
	}
	return false
}

// there reports whether an API server that was asked whether it is ready is, or knows no such question. One that does not allow it has not read its rules yet.
func there(err error) bool {
	var answer apierrors.APIStatus
	return err == nil || errors.As(err, &answer) && answer.Status().Code < http.StatusInternalServerError && !apierrors.IsForbidden(err) && !apierrors.IsUnauthorized(err)
}

// once asks whether the API server is ready.
func (r *Ready) once(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	return r.server.Get().AbsPath("/readyz").MaxRetries(0).Do(ctx).Error()
}

// ask asks until the API server is ready, or ctx ends.
func (r *Ready) ask(ctx context.Context) bool {
	refusals := 0
	for wait := readyFirst; ; wait = min(2*wait, readyMost) {
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
			return true // it knows no such path
		}
		if !tasks.Sleep(ctx, wait) {
			return false
		}
	}
}
