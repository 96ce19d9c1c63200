package kube

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/berthd/berth/internal/retry"
)

// steady is how long a watch must have lasted to be opened again without a wait.
const steady = time.Second / 2

// Source is what [Follow] reads from. P is what its watch sends: a pointer to an API type, or an
// interface of several.
type Source[P metav1.Object] struct {
	// Name says in logs what is read: a resource, or an object.
	Name string
	// List returns all current objects and the revision of the list.
	List func(ctx context.Context) ([]P, string, error)
	// Watch opens a stream of the changes since a revision. [Follow] stops the stream.
	Watch func(ctx context.Context, revision string) (watch.Interface, error)
}

// Handler takes what a follower reads. Its functions are called one after the other, and must not
// modify the objects.
type Handler[P any] struct {
	// Replace gets all current objects: at first, and whenever changes may have been missed.
	Replace func(items []P)
	// Set gets an object that is new or changed. Remove gets an object that was deleted, in its
	// last state.
	Set, Remove func(item P)
	// Final, if set, reports whether an object cannot change any more. [Follow] ends when its only
	// object is such an object.
	Final func(item P) bool
	// Failed, if set, gets the error when the API server cannot be read, and nil when it can be
	// read again.
	Failed func(err error)
	// Ready, if set, waits after a failure until the API server is ready again. It reports whether
	// ctx lasted.
	Ready func(ctx context.Context, err error) bool
	// Back, if set, waits during the back-off after a failure for an API server that is away. It
	// reports whether the API server came back, which ends the back-off.
	Back   func(ctx context.Context, err error) bool
	Logger *slog.Logger
}

// errAtOnce says that a stream ended before its first event.
var errAtOnce = errors.New("the API server ends watches at once")

// errWithheld replaces an error that the API server sent as something else than a status. What it
// sent may be secret, and must not be quoted.
var errWithheld = errors.New("the API server ended the watch with an error that it does not tell")

// errOther says that a stream had something that was not asked for. It does not quote that either.
var errOther = errors.New("the API server sent something that was not asked for")

// errFinal says that nothing can change any more.
var errFinal = errors.New("there is nothing more to come")

// follower is one running [Follow].
type follower[P metav1.Object] struct {
	source  Source[P]
	handler Handler[P]
	// revision is the last revision that was read. If it is empty, the objects are listed.
	revision string
	// failures counts the failures in a row. reported says that the handler knows of them.
	failures int
	reported bool
}

// Follow lists a source's objects and gives them, and every change, to the handler, until ctx ends.
// A stream that breaks is resumed at its last revision. The objects are listed again if that is not
// possible, and after the API server could not be reached: another API server may have come back,
// or one that was restored to an earlier state. Follow tries failures again without end, with
// back-off.
func Follow[P metav1.Object](ctx context.Context, source Source[P], h Handler[P]) {
	f := &follower[P]{source: source, handler: h}
	for ctx.Err() == nil {
		err := f.round(ctx)
		if ctx.Err() != nil || errors.Is(err, errFinal) {
			return
		}
		if err == nil {
			f.failures = 0
			continue
		}
		f.failures++
		if expired(err) && f.failures == 1 {
			continue // the API server asks for a new list
		}
		if !errors.Is(err, errAtOnce) && !expired(err) {
			f.report(err)
		}
		if (h.Ready != nil && !h.Ready(ctx, err)) || !f.rest(ctx, err) {
			return
		}
	}
}

// rest waits for the back-off after a failure. The wait ends early when an API server that was away
// is back. rest reports whether ctx lasted.
func (f *follower[P]) rest(ctx context.Context, err error) bool {
	delay, began := Retry.Delay(f.failures, err), time.Now()
	if f.handler.Back != nil {
		wait, cancel := context.WithTimeout(ctx, delay)
		back := f.handler.Back(wait, err)
		cancel()
		if back {
			return ctx.Err() == nil
		}
	}
	return retry.Sleep(ctx, delay-time.Since(began))
}

// round lists the objects if necessary, and watches until the stream ends. The normal end of a
// stream is not an error.
func (f *follower[P]) round(ctx context.Context) error {
	if f.revision == "" {
		items, revision, err := f.source.List(ctx)
		if err != nil {
			return err
		}
		f.handler.Replace(items)
		if len(items) == 1 && f.final(items[0]) {
			return errFinal
		}
		f.revision = revision
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	w, err := f.source.Watch(ctx, f.revision)
	if err != nil {
		f.lost(err)
		return err
	}
	defer w.Stop()
	f.report(nil)
	began := time.Now()
	n, err := f.read(ctx, w)
	if n > 0 || time.Since(began) >= steady {
		f.failures = 0
	} else if err == nil {
		return errAtOnce
	}
	return err
}

// read gives a stream's events to the handler until the stream ends, and returns their number.
func (f *follower[P]) read(ctx context.Context, w watch.Interface) (n int, err error) {
	for {
		select {
		case <-ctx.Done():
			return n, nil
		case e, ok := <-w.ResultChan():
			if !ok {
				return n, nil
			}
			if reset(e) {
				return n, nil
			}
			if err := f.event(e); err != nil {
				return n, err
			}
			n++
		}
	}
}

// reset reports whether an intermediary reset the stream (RST_STREAM of HTTP/2, as load balancers
// send it after some time). The client library makes an error of a reset, but not of the other ends
// of a stream. The API server has said nothing in this case.
func reset(e watch.Event) bool {
	status, ok := e.Object.(*metav1.Status)
	if e.Type != watch.Error || !ok || status.Details == nil {
		return false
	}
	return slices.ContainsFunc(status.Details.Causes, func(c metav1.StatusCause) bool {
		return c.Type == "ClientWatchDecoding" && strings.Contains(c.Message, "stream error: stream ID ")
	})
}

// event gives one event to the handler.
func (f *follower[P]) event(e watch.Event) error {
	if e.Type == watch.Error {
		err := errWithheld
		if status, ok := e.Object.(*metav1.Status); ok {
			err = apierrors.FromObject(status)
		}
		f.lost(err)
		return err
	}
	item, ok := e.Object.(P)
	if !ok {
		f.revision = ""
		return errOther
	}
	switch e.Type {
	case watch.Added, watch.Modified:
		f.handler.Set(item)
	case watch.Deleted:
		f.handler.Remove(item)
	}
	if r := item.GetResourceVersion(); r != "" {
		f.revision = r
	}
	if e.Type != watch.Deleted && e.Type != watch.Bookmark && f.final(item) {
		return errFinal
	}
	return nil
}

func (f *follower[P]) final(item P) bool { return f.handler.Final != nil && f.handler.Final(item) }

// lost makes the follower list the objects again after an error of a watch, except if the server
// said that it is only busy. The server that answers next may not know the revision, or may use
// that revision for another state.
func (f *follower[P]) lost(err error) {
	if !apierrors.IsTooManyRequests(err) {
		f.revision = ""
	}
}

// expired reports whether the API server no longer has the changes since the requested revision.
func expired(err error) bool {
	if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
		return true
	}
	var status apierrors.APIStatus
	return errors.As(err, &status) && status.Status().Code == http.StatusGone
}

// report logs and reports the first of the failures in a row, and their end.
func (f *follower[P]) report(err error) {
	switch {
	case err == nil && f.reported:
		f.handler.Logger.Info("the API server can be read again", "resource", f.source.Name)
	case err != nil && !f.reported:
		f.handler.Logger.Warn("the API server cannot be read; what was read last stays", "resource", f.source.Name,
			"err", err)
	}
	f.reported = err != nil
	if f.handler.Failed != nil {
		f.handler.Failed(err)
	}
}
