package cluster

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

	"github.com/berthd/berth/agent/tasks"
)

// steady is how long a watch must have lasted to be begun again at once.
const steady = time.Second / 2

// Source is what [Follow] reads from. P is what its watch sends, a pointer to an API type or an interface of several.
type Source[P metav1.Object] struct {
	// Name says in logs what it is that is read: a resource, or an object.
	Name string
	// List returns all objects that there are, and the revision at which they were so.
	List func(ctx context.Context) ([]P, string, error)
	// Watch opens a stream of the changes since a revision. It is [Follow]'s to stop.
	Watch func(ctx context.Context, revision string) (watch.Interface, error)
}

// Handler takes what a follower reads. Its functions are called one after the other, and must not modify the objects.
type Handler[P any] struct {
	// Replace gets all objects that there are: at first, and whenever changes may have been missed.
	Replace func(items []P)
	// Set gets an object that is new or changed, Remove one that is gone, in its last state.
	Set, Remove func(item P)
	// Final, where it is set, reports whether an object cannot change any more. [Follow] ends where one that cannot is all that there is.
	Final func(item P) bool
	// Trouble, where it is set, is told that the API server cannot be read, and with nil that it can be again.
	Trouble func(err error)
	// Ready, where it is set, waits after a failure until the API server is ready again, and reports whether ctx let it.
	Ready func(ctx context.Context, err error) bool
	// Back, where it is set, waits during the back-off after a failure for an API server that is away, and reports whether it has come back: that ends the back-off.
	Back   func(ctx context.Context, err error) bool
	Logger *slog.Logger
}

// errAtOnce says that a stream ended before anything came.
var errAtOnce = errors.New("the API server ends watches at once")

// errUntold is in the place of an error that the API server sent as something else than a status: what it sent may be secret, and must not be quoted.
var errUntold = errors.New("the API server ended the watch with an error that it does not tell")

// errOther says that a stream had something that is not what was asked for. It is not quoted either.
var errOther = errors.New("the API server sent something that was not asked for")

// errFinal says that nothing can change any more.
var errFinal = errors.New("there is nothing more to come")

// follower is one Follow under way.
type follower[P metav1.Object] struct {
	source  Source[P]
	handler Handler[P]
	// revision is the last one that was read; empty asks for a list.
	revision string
	// failures counts those in a row; told says that the handler knows of them.
	failures int
	told     bool
}

// Follow lists a source's objects and tells the handler of them and of every change, until ctx ends. A stream that breaks is resumed where it was; a list is made again
// where that is not possible, and after an API server could not be reached, as another one may have come back, or one that was restored to an earlier state.
// Failures are retried for ever, with back-off.
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
			continue // the list is what it asks for
		}
		if !errors.Is(err, errAtOnce) && !expired(err) {
			f.tell(err)
		}
		if (h.Ready != nil && !h.Ready(ctx, err)) || !f.rest(ctx, err) {
			return
		}
	}
}

// rest waits for the back-off after a failure, but not once an API server that was away is back. It reports whether ctx let it.
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
	return tasks.Sleep(ctx, delay-time.Since(began))
}

// round lists, where that is needed, and watches until the stream ends. A stream that ended as streams do is no error.
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
	f.tell(nil)
	began := time.Now()
	n, err := f.read(ctx, w)
	if n > 0 || time.Since(began) >= steady {
		f.failures = 0
	} else if err == nil {
		return errAtOnce
	}
	return err
}

// read hands on a stream's events until it ends, and returns how many there were.
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

// reset reports whether an event says that somebody between us and the API server has broken off the stream (HTTP/2's RST_STREAM, as load balancers do after a time): the client
// library, which takes other ends of streams for ends, makes an error of that. The API server has said nothing.
func reset(e watch.Event) bool {
	status, ok := e.Object.(*metav1.Status)
	if e.Type != watch.Error || !ok || status.Details == nil {
		return false
	}
	return slices.ContainsFunc(status.Details.Causes, func(c metav1.StatusCause) bool {
		return c.Type == "ClientWatchDecoding" && strings.Contains(c.Message, "stream error: stream ID ")
	})
}

// event hands on one event.
func (f *follower[P]) event(e watch.Event) error {
	if e.Type == watch.Error {
		err := errUntold
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

// lost has the objects listed anew after an error of a watch, unless the server said that it is only busy: who answers next may not know the revision, or mean
// something else by it.
func (f *follower[P]) lost(err error) {
	if !apierrors.IsTooManyRequests(err) {
		f.revision = ""
	}
}

// expired reports whether the API server cannot tell of changes since the revision that it was asked for.
func expired(err error) bool {
	if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
		return true
	}
	var status apierrors.APIStatus
	return errors.As(err, &status) && status.Status().Code == http.StatusGone
}

// tell tells of a failure and of the end of failures.
func (f *follower[P]) tell(err error) {
	switch {
	case err == nil && f.told:
		f.handler.Logger.Info("the API server can be read again", "resource", f.source.Name)
	case err != nil && !f.told:
		f.handler.Logger.Warn("the API server cannot be read; what was read last stays", "resource", f.source.Name, "err", err)
	}
	f.told = err != nil
	if f.handler.Trouble != nil {
		f.handler.Trouble(err)
	}
}
