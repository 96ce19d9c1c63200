package images

import (
	"context"
	"errors"
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/containerd/errdefs"
)

// server is a transport whose answers the test writes.
type server func(*http.Request) (*http.Response, error)

func (s server) RoundTrip(req *http.Request) (*http.Response, error) { return s(req) }

// body is a body that ends with its request, as those of net/http do.
func body(req *http.Request, r io.Reader) io.ReadCloser {
	return io.NopCloser(readerFunc(func(p []byte) (int, error) {
		type got struct {
			n   int
			err error
		}
		read := make(chan got, 1)
		go func() { n, err := r.Read(p); read <- got{n, err} }()
		select {
		case g := <-read:
			return g.n, g.err
		case <-req.Context().Done():
			return 0, req.Context().Err()
		}
	}))
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

func request(t *testing.T) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://r.example/v2/", nil)
	if err != nil {
		t.Fatal(err)
	}
	return req
}

func TestSilenceBeforeTheAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &watched{stall: time.Minute, RoundTripper: server(func(req *http.Request) (*http.Response, error) {
			<-req.Context().Done()
			return nil, req.Context().Err()
		})}
		_, err := w.RoundTrip(request(t))
		if !errdefs.IsUnavailable(err) || err.Error() != "r.example sent nothing for 1m0s: unavailable" {
			t.Errorf("got %v", err)
		}
	})
}

func TestSilenceInTheAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pipe, send := io.Pipe()
		w := &watched{stall: time.Minute, RoundTripper: server(func(req *http.Request) (*http.Response, error) {
			return &http.Response{Body: body(req, pipe)}, nil
		})}
		resp, err := w.RoundTrip(request(t))
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			for range 5 { // slowly, but without a stall
				time.Sleep(50 * time.Second)
				_, _ = send.Write([]byte("x"))
			}
		}()
		data, err := io.ReadAll(resp.Body)
		if string(data) != "xxxxx" || !errdefs.IsUnavailable(err) {
			t.Errorf("got %q, %v", data, err)
		}
		_ = send.Close()
		_ = resp.Body.Close()
	})
}

// Other errors stay what they are, and a body that is closed leaves no timer.
func TestOtherEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("connection reset")
		w := &watched{stall: time.Minute, RoundTripper: server(func(*http.Request) (*http.Response, error) {
			return nil, broken
		})}
		if _, err := w.RoundTrip(request(t)); !errors.Is(err, broken) {
			t.Errorf("got %v", err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		w.RoundTripper = server(func(req *http.Request) (*http.Response, error) {
			return &http.Response{Body: body(req, &io.PipeReader{})}, req.Context().Err()
		})
		cancel()
		if _, err := w.RoundTrip(request(t).WithContext(ctx)); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
	})
}
