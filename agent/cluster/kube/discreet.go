package kube

import (
	"io"
	"net/http"
	"slices"
	"strings"
)

// secretive are the last path elements of requests whose bodies, or whose answers' bodies, have
// secrets.
var secretive = []string{"secrets", "token", "tokenreviews"}

// discreet keeps texts of intermediaries out of errors about secrets. The client library quotes an
// answer that is a text, such as the error page of a proxy, and that text may repeat the secret.
// The API server's own answers are not texts, and stay.
type discreet struct {
	next http.RoundTripper
}

// RoundTrip sends the request. If an error answers it with a text, RoundTrip drops the text.
func (d discreet) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := d.next.RoundTrip(r)
	if err != nil || resp.StatusCode < http.StatusBadRequest || !aboutSecrets(r.URL.Path) ||
		strings.HasPrefix(resp.Header.Get("Content-Type"), "application/") {
		return resp, err
	}
	// so that the connection can be used again
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 64<<10))
	_ = resp.Body.Close()
	resp.Body, resp.ContentLength = http.NoBody, 0
	resp.Header = resp.Header.Clone()
	resp.Header.Set("Content-Type", "application/octet-stream")
	return resp, nil
}

// WrappedRoundTripper returns the inner transport; client-go's helpers look for this method.
func (d discreet) WrappedRoundTripper() http.RoundTripper { return d.next }

// aboutSecrets reports whether a path is about Secrets, a token that is issued, or a token that is
// reviewed.
func aboutSecrets(path string) bool {
	parts := strings.Split(strings.TrimSuffix(path, "/"), "/")
	return slices.Contains(secretive, parts[len(parts)-1]) || len(parts) > 1 && parts[len(parts)-2] == "secrets"
}
