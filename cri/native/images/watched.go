package images

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/containerd/errdefs"
)

// watched is a transport that ends a request when the server sends nothing for too long, before or
// after the beginning of its answer.
type watched struct {
	http.RoundTripper
	stall time.Duration
}

// RoundTrip implements [http.RoundTripper].
func (w *watched) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(req.Context())
	watch := &watchedBody{stall: w.stall, ctx: ctx, cancel: cancel}
	watch.timer = time.AfterFunc(w.stall, func() {
		cancel(fmt.Errorf("%s sent nothing for %s: %w", req.URL.Host, w.stall, errdefs.ErrUnavailable))
	})
	resp, err := w.RoundTripper.RoundTrip(req.WithContext(ctx))
	if err != nil {
		defer watch.end()
		return nil, watch.why(err)
	}
	watch.timer.Reset(w.stall)
	watch.ReadCloser = resp.Body
	resp.Body = watch
	return resp, nil
}

// watchedBody is an answer's body.
type watchedBody struct {
	io.ReadCloser
	stall  time.Duration
	timer  *time.Timer
	ctx    context.Context //nolint:containedctx // the request's, for as long as the body is read
	cancel context.CancelCauseFunc
}

// Read implements [io.Reader].
func (b *watchedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if n > 0 {
		b.timer.Reset(b.stall)
	}
	if err != nil && err != io.EOF { //nolint:errorlint // readers return io.EOF itself
		err = b.why(err)
	}
	return n, err
}

// Close implements [io.Closer].
func (b *watchedBody) Close() error {
	defer b.end()
	return b.ReadCloser.Close()
}

func (b *watchedBody) end() {
	b.timer.Stop()
	b.cancel(nil)
}

// why returns the reason for which the watch has ended the request, or else the error itself.
func (b *watchedBody) why(err error) error {
	if cause := context.Cause(b.ctx); errdefs.IsUnavailable(cause) {
		return cause
	}
	return err
}
