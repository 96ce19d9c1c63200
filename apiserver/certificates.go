package apiserver

import (
	"crypto/sha256"
	"crypto/x509"
	"fmt"
	"net/http"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/kubernetes/cmd/kube-apiserver/app"
)

const (
	// certificatesValid is how long the result of a certificate's verification counts. Upstream
	// remembers tokens for as long.
	certificatesValid = 10 * time.Second
	// mostCertificates is how many results are remembered: far more than one machine's clients have.
	mostCertificates = 1000
)

// certificates is an authenticator that remembers for a moment whom a client certificate stands for.
// Upstream verifies the certificate again for each request of a connection, which is an eighth of
// the CPU of a small request. It is safe for concurrent use.
type certificates struct {
	inner authenticator.Request
	// headers name the user whom a proxy speaks for: then a certificate is the proxy's.
	headers []string
	known   *cache.LRUExpireCache
}

// rememberCertificates has the server remember them.
func rememberCertificates(config *app.Config, o *Options) {
	a := &config.Aggregator.GenericConfig.Authentication
	a.Authenticator = &certificates{
		inner: a.Authenticator, headers: o.Server.Authentication.RequestHeader.UsernameHeaders,
		known: cache.NewLRUExpireCache(mostCertificates),
	}
}

// AuthenticateRequest is [authenticator.Request]'s. It remembers only successes, and only of
// requests that say nothing of their user but the certificate. A token can be in several headers,
// so the user must say that the certificate was the credential.
func (c *certificates) AuthenticateRequest(req *http.Request) (*authenticator.Response, bool, error) {
	if !c.alone(req) {
		return c.inner.AuthenticateRequest(req)
	}
	chain := req.TLS.PeerCertificates
	key := digest(chain)
	if known, ok := c.known.Get(key); ok {
		return new(known.(authenticator.Response)), true, nil
	}
	response, ok, err := c.inner.AuthenticateRequest(req)
	if err == nil && ok && slices.Equal(response.User.GetExtra()[user.CredentialIDKey], []string{credential(chain[0])}) {
		left := time.Until(chain[0].NotAfter)
		for _, certificate := range chain[1:] {
			left = min(left, time.Until(certificate.NotAfter))
		}
		c.known.Add(key, *response, min(left, certificatesValid))
	}
	return response, ok, err
}

// alone reports whether a request has a certificate and names its user in no other way.
func (c *certificates) alone(req *http.Request) bool {
	return req.TLS != nil && len(req.TLS.PeerCertificates) > 0 && req.Header.Get("Authorization") == "" &&
		!slices.ContainsFunc(c.headers, func(name string) bool { return len(req.Header.Values(name)) > 0 })
}

// credential is what upstream says of the user of a client certificate.
func credential(certificate *x509.Certificate) string {
	return fmt.Sprintf("X509SHA256=%x", sha256.Sum256(certificate.Raw))
}

// digest identifies the certificates that a client has shown.
func digest(chain []*x509.Certificate) (sum [sha256.Size]byte) {
	hash := sha256.New()
	for _, certificate := range chain {
		of := sha256.Sum256(certificate.Raw)
		hash.Write(of[:])
	}
	hash.Sum(sum[:0])
	return sum
}
