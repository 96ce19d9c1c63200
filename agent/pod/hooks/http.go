package hooks

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	v1 "k8s.io/api/core/v1"

	"github.com/berthd/berth/probes"
)

// httpGet sends the request once. If the server of an HTTPS hook speaks HTTP, httpGet sends the
// request again over HTTP: before Kubernetes 1.23 hooks ran over HTTP whatever their scheme was,
// and manifests still rely on it. Any answer is a success, whatever its status is.
func (r *Runner) httpGet(ctx context.Context, h hook) (fallback bool, err error) {
	req, err := probes.NewHTTPRequest(ctx, h.handler.HTTPGet, probes.HTTPTarget{
		Container: h.container, PodIP: h.podIP, UserAgent: r.cfg.UserAgent,
	})
	if err != nil {
		return false, err
	}
	err = r.ask(req)
	if !errors.Is(err, http.ErrSchemeMismatch) {
		return false, err
	}
	plain := req.Clone(ctx)
	plain.URL.Scheme = "http"
	// A header that was meant for an encrypted connection must not be sent in plain text.
	plain.Header.Del("Authorization")
	if r.ask(plain) != nil {
		return false, err
	}
	if r.deps.Events != nil {
		r.deps.Events(h.pod, "", v1.EventTypeWarning, reasonHTTPFallback,
			fmt.Sprintf("request to HTTPS lifecycle hook %s got HTTP response, retry with HTTP succeeded",
				req.URL.Host))
	}
	return true, nil
}

// ask sends a request and ignores the answer.
func (r *Runner) ask(req *http.Request) error {
	resp, err := r.http.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	// A short read lets the server finish a short answer without an error. A body that breaks off
	// says nothing about the hook.
	_, _ = io.CopyN(io.Discard, resp.Body, maxBody)
	return nil
}
