package auth

import (
	"cmp"
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

// tokenReviewer says which user a token belongs to; Reviews is one.
type tokenReviewer interface {
	token(ctx context.Context, token string) (authenticationv1.TokenReviewStatus, error)
}

// authenticator finds out which user sent a request.
type authenticator struct {
	// authorities returns the authorities that sign client certificates; nil if none are known.
	authorities func() *x509.CertPool
	// tokens is nil if tokens are not accepted.
	tokens    tokenReviewer
	ttl       time.Duration
	anonymous bool

	cache cache[tokenResult]
	// failed are the certificates that could not be verified; see failedFor.
	failed cache[error]
}

const (
	// maxShown bounds the certificates that a caller may show: its own, and those between its own
	// and an authority's. To look for a path through many of them takes half a second of CPU.
	maxShown = 5
	// failedFor is how long certificates are not verified again after they could not be: whoever shows
	// them does so with each request.
	failedFor = 10 * time.Second
)

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
	if shown := certificates(r); len(shown) > 0 && a.authorities != nil {
		u, err := a.byCertificate(r.Context(), shown)
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

func certificates(r *http.Request) []*x509.Certificate {
	if r.TLS == nil {
		return nil
	}
	return r.TLS.PeerCertificates
}

// byCertificate checks a client certificate with the current authorities, not with those at the
// time of the connection.
func (a *authenticator) byCertificate(ctx context.Context, shown []*x509.Certificate) (User, error) {
	roots := a.authorities()
	switch {
	case roots == nil:
		return User{}, errors.New("verifying the client certificate: no authorities are known")
	case len(shown) > maxShown:
		return User{}, fmt.Errorf("verifying the client certificate: %d certificates were shown, more than %d",
			len(shown), maxShown)
	}
	question := []string{fmt.Sprintf("%p", roots)}
	for _, c := range shown {
		question = append(question, string(c.Raw))
	}
	failure, err := a.failed.get(ctx, keyOf(question...), func(context.Context) (error, time.Duration, error) {
		if err := verify(shown, roots); err != nil {
			return err, failedFor, nil
		}
		return nil, 0, nil
	})
	if err = cmp.Or(failure, err); err != nil {
		return User{}, fmt.Errorf("verifying the client certificate of %q: %w", shown[0].Subject.CommonName, err)
	}
	if shown[0].Subject.CommonName == "" {
		return User{}, errors.New("verifying the client certificate: it names no user")
	}
	return userOfCertificate(shown[0]), nil
}

// verify checks the first certificate with the others and the authorities.
func verify(shown []*x509.Certificate, roots *x509.CertPool) error {
	intermediates := x509.NewCertPool()
	for _, c := range shown[1:] {
		intermediates.AddCert(c)
	}
	_, err := shown[0].Verify(x509.VerifyOptions{
		Roots:         roots,
		Intermediates: intermediates,
		KeyUsages:     []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	return err
}

func (a *authenticator) byToken(ctx context.Context, token string) (User, error) {
	v, err := a.cache.get(ctx, keyOf(token), func(ctx context.Context) (tokenResult, time.Duration, error) {
		status, err := a.tokens.token(ctx, token)
		if err != nil {
			return tokenResult{}, 0, err
		}
		return tokenResult{user: userOfReview(status.User), ok: status.Authenticated, why: status.Error}, a.ttl, nil
	})
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
