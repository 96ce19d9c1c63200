package probes

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
)

const (
	// maxRedirects is how many redirects a request follows (the default of net/http).
	maxRedirects = 10
	// maxHeaderBytes limits a response's header, in bytes. The limit of net/http is 10 MiB.
	maxHeaderBytes = 64 << 10
)

// NewHTTPTransport returns a transport for requests to containers, which all requests share. It
// does not verify certificates, uses no proxies of the environment and no credentials of the node,
// and keeps no connection after its request. denyLinkLocal refuses targets such as a cloud's
// metadata service.
func NewHTTPTransport(denyLinkLocal bool) *http.Transport {
	return &http.Transport{
		DialContext: dialers{denyLinkLocal}.dialer(0).DialContext,
		TLSClientConfig: &tls.Config{
			InsecureSkipVerify: true,
		}, //nolint:gosec // Probes ask whether it answers, not who it is.
		ForceAttemptHTTP2:      true,
		DisableKeepAlives:      true,
		DisableCompression:     true,
		MaxResponseHeaderBytes: maxHeaderBytes,
	}
}

// SameHostRedirects is the CheckRedirect of an http.Client that stays on the host of the first
// request. It does not follow a redirect to another host; the redirect itself is then the answer.
func SameHostRedirects(req *http.Request, via []*http.Request) error {
	if req.URL.Hostname() != via[0].URL.Hostname() {
		return http.ErrUseLastResponse
	}
	if len(via) >= maxRedirects {
		return errors.New("stopped after 10 redirects")
	}
	return nil
}

// HTTPTarget is the target of an httpGet action of a probe or hook.
type HTTPTarget struct {
	// Container resolves named ports.
	Container *v1.Container
	// PodIP is the host if the action names none.
	PodIP string
	// UserAgent is sent if the action's headers have none.
	UserAgent string
}

// NewHTTPRequest builds the request of an httpGet action. The default scheme is http and the
// default host is the pod's IP. The action's headers are sent as they are, also Host.
// NewHTTPRequest fails if there is no host or if the port cannot be resolved.
func NewHTTPRequest(ctx context.Context, get *v1.HTTPGetAction, target HTTPTarget) (*http.Request, error) {
	host, err := hostOr(get.Host, target.PodIP)
	if err != nil {
		return nil, err
	}
	port, err := ResolvePort(get.Port, target.Container)
	if err != nil {
		return nil, err
	}
	u := requestURL(get.Path)
	u.Scheme = strings.ToLower(string(get.Scheme))
	if u.Scheme == "" {
		u.Scheme = "http"
	}
	u.Host = net.JoinHostPort(host, strconv.Itoa(port))
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), http.NoBody)
	if err != nil {
		return nil, fmt.Errorf("build request for path %q: %w", get.Path, err)
	}
	setHeaders(req, get.HTTPHeaders, target.UserAgent)
	return req, nil
}

// requestURL returns a URL with the path and query of the action's path. If that cannot be parsed,
// all of it is the path.
func requestURL(path string) *url.URL {
	parsed, err := url.Parse(path)
	if err != nil {
		return &url.URL{Path: path}
	}
	return &url.URL{
		Path:       parsed.Path,
		RawPath:    parsed.RawPath,
		RawQuery:   parsed.RawQuery,
		ForceQuery: parsed.ForceQuery,
	}
}

// setHeaders sets the action's headers and the defaults of User-Agent and Accept. If the action
// sets Accept to an empty value, no Accept is sent.
func setHeaders(req *http.Request, headers []v1.HTTPHeader, userAgent string) {
	for _, h := range headers {
		req.Header.Add(h.Name, h.Value)
	}
	if _, ok := req.Header["User-Agent"]; !ok {
		req.Header.Set("User-Agent", userAgent)
	}
	if _, ok := req.Header["Accept"]; !ok {
		req.Header.Set("Accept", "*/*")
	} else if req.Header.Get("Accept") == "" {
		req.Header.Del("Accept")
	}
	req.Host = req.Header.Get("Host")
}

// httpGet sends one request. A status of 200 to 399 is a success; a redirect to another host is a
// success with a warning. No answer in time is a failure. A body that breaks off or does not end in
// time is an error, because the status was already there.
func (p *prober) httpGet(ctx context.Context, t task, timeout time.Duration) (reply, error) {
	req, err := NewHTTPRequest(ctx, t.spec.HTTPGet, HTTPTarget{
		Container: t.container,
		PodIP:     t.podIP,
		UserAgent: p.userAgent,
	})
	if err != nil {
		return reply{outcome: unknown}, err
	}
	client := http.Client{Transport: p.transport, CheckRedirect: SameHostRedirects, Timeout: timeout}
	resp, err := client.Do(req)
	if err != nil {
		return reply{outcome: failure, text: err.Error()}, nil
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxOutput))
	if err != nil {
		return reply{outcome: failure}, fmt.Errorf("read response body: %w", err)
	}
	switch code := resp.StatusCode; {
	case code >= http.StatusOK && code < http.StatusMultipleChoices:
		return reply{outcome: success, text: string(body)}, nil
	case code >= http.StatusMultipleChoices && code < http.StatusBadRequest:
		return reply{outcome: warning, text: "Probe terminated redirects, Response body: " + string(body)}, nil
	default:
		// The text does not contain the body, which readers of events may not be allowed to see
		// (k/k#99425).
		return reply{outcome: failure, text: fmt.Sprintf("HTTP probe failed with statuscode: %d", code)}, nil
	}
}
