package auth

import (
	"context"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	authenticationv1 "k8s.io/api/authentication/v1"
)

// errUnknown is the error of a request without credentials.
var errUnknown = errors.New("neither a client certificate nor a token was shown")

// maxWaiting bounds the requests that wait for reviews of tokens that nobody knows, likewise those
// with tokens that were good lately, and those of one user's rights. Each holds its headers, for
// [reviewTimeout] if the API server is silent. A node has few callers, and answers are remembered.
const maxWaiting = 256

// errCrowded is the error of a request above this limit.
var errCrowded = errors.New("too many requests wait for reviews")

// tokenReviewer says which user a token belongs to, and whether a token was good lately; Reviews is
// one.
type tokenReviewer interface {
	token(ctx context.Context, token string) (authenticationv1.TokenReviewStatus, error)
	lately(token string) bool
}

// authenticator finds out which user sent a request.
type authenticator struct {
	// tokens is nil if tokens are not accepted.
	tokens    tokenReviewer
	ttl       time.Duration
	anonymous bool

	certificates certificates
	cache        cache[tokenResult]
	// strangers and renewals have an element for each request that waits for the review of its token;
	// renewals are those with tokens that were good lately.
	strangers, renewals chan struct{}
}

// tokenResult is the result of a token's review.
type tokenResult struct {
	user User
	ok   bool
	why  string
}

// user returns the user of a request. It removes the token from the request, so that no handler
// sees it. Credentials must be valid: a request with an invalid certificate or token is not
// anonymous.
func (a *authenticator) user(r *http.Request) (User, error) {
	var errs []error
	if shown := shownBy(r); len(shown) > 0 && a.certificates.authorities != nil {
		u, err := a.certificates.user(r.Context(), shown)
		if err == nil {
			return u, nil
		}
		errs = append(errs, err)
	}
	for _, from := range []struct {
		token  string
		remove func()
	}{
		{bearer(r), func() { r.Header.Del("Authorization") }},
		{protocolToken(r), func() { removeTokenProtocol(r) }},
	} {
		if from.token == "" || a.tokens == nil {
			continue
		}
		u, err := a.byToken(r.Context(), from.token)
		if err == nil {
			from.remove()
			return u, nil
		}
		errs = append(errs, err)
	}
	switch {
	case len(errs) > 0:
		return User{}, errors.Join(errs...)
	case a.anonymous:
		return anonymous(), nil
	}
	return User{}, errUnknown
}

func shownBy(r *http.Request) []*x509.Certificate {
	if r.TLS == nil {
		return nil
	}
	return r.TLS.PeerCertificates
}

func (a *authenticator) byToken(ctx context.Context, token string) (User, error) {
	v, known := a.cache.known(keyOf(token))
	var err error
	if !known {
		v, err = a.review(ctx, token)
	}
	switch {
	case err != nil:
		return User{}, fmt.Errorf("checking the token: %w", err)
	case !v.ok && v.why != "":
		return User{}, fmt.Errorf("checking the token: %s", v.why)
	case !v.ok:
		return User{}, errors.New("checking the token: the API server does not know it")
	}
	return v.user, nil
}

// review waits for the review of a token that is not in the cache, if there is a place to wait.
func (a *authenticator) review(ctx context.Context, token string) (tokenResult, error) {
	places := a.strangers
	if a.tokens.lately(token) {
		places = a.renewals
	}
	select {
	case places <- struct{}{}:
		defer func() { <-places }()
	default:
		return tokenResult{}, errCrowded
	}
	return a.cache.get(ctx, keyOf(token), func(ctx context.Context) (tokenResult, time.Duration, error) {
		status, err := a.tokens.token(ctx, token)
		if err != nil {
			return tokenResult{}, 0, err
		}
		return tokenResult{user: userOfReview(status.User), ok: status.Authenticated, why: status.Error}, a.ttl, nil
	})
}

// bearer returns the token of the request's Authorization header, empty if there is none.
func bearer(r *http.Request) string {
	kind, token, ok := strings.Cut(strings.TrimSpace(r.Header.Get("Authorization")), " ")
	if !ok || !strings.EqualFold(kind, "bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}

// tokenProtocol is the prefix of the WebSocket subprotocol in which browsers send a token, because
// they cannot set headers.
const tokenProtocol = "base64url.bearer.authorization.k8s.io."

const protocolHeader = "Sec-Websocket-Protocol"

// protocolToken returns the token among the WebSocket's subprotocols; empty if there is none. The
// request must name another subprotocol, which is then used.
func protocolToken(r *http.Request) string {
	if !strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
		return ""
	}
	all := protocols(r)
	i := slices.IndexFunc(all, isTokenProtocol)
	if i < 0 || len(all) < 2 {
		return ""
	}
	token, err := base64.RawURLEncoding.DecodeString(strings.TrimPrefix(all[i], tokenProtocol))
	if err != nil || !utf8.Valid(token) {
		return ""
	}
	return string(token)
}

func isTokenProtocol(p string) bool { return strings.HasPrefix(p, tokenProtocol) }

func protocols(r *http.Request) []string {
	var all []string
	for _, line := range r.Header.Values(protocolHeader) {
		for p := range strings.SplitSeq(line, ",") {
			all = append(all, strings.TrimSpace(p))
		}
	}
	return all
}

func removeTokenProtocol(r *http.Request) {
	r.Header.Set(protocolHeader, strings.Join(slices.DeleteFunc(protocols(r), isTokenProtocol), ","))
}
