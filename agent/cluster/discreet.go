package cluster

import (
	"io"
	"net/http"
	"slices"
	"strings"
)

// secretive are the last parts of the paths of requests whose bodies, or whose answers' bodies, hold secrets.
var secretive = []string{"secrets", "token", "tokenreviews"}

// discreet keeps what somebody between us and the API server says back (a proxy's page of an error, say) out of errors about secrets: the client library quotes an
// answer that is a text. The API's own answers are no text, and stay.
type discreet struct {
	next http.RoundTripper
}

// RoundTrip sends the request, and drops a text that answers it as an error.
func (d discreet) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := d.next.RoundTrip(r)
	if err != nil || resp.StatusCode < http.StatusBadRequest || !aboutSecrets(r.URL.Path) || strings.HasPrefix(resp.Header.Get("Content-Type"), "application/") {
		return resp, err
	}
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 64<<10)) // so that the connection can be used again
	_ = resp.Body.Close()
	resp.Body, resp.ContentLength = http.NoBody, 0
	resp.Header = resp.Header.Clone()
	resp.Header.Set("Content-Type", "application/octet-stream")
	return resp, nil
}

// WrappedRoundTripper returns the transport beneath, as client-go's helpers look for it.
func (d discreet) WrappedRoundTripper() http.RoundTripper { return d.next }

// aboutSecrets reports whether a path is one of Secrets, of tokens being issued, or of tokens being looked at.
func aboutSecrets(path string) bool {
	parts := strings.Split(strings.TrimSuffix(path, "/"), "/")
	return slices.Contains(secretive, parts[len(parts)-1]) || len(parts) > 1 && parts[len(parts)-2] == "secrets"
}
