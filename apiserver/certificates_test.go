package apiserver

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
)

// TestCertificates has a certificate verified once in ten seconds, and never longer than it is
// valid. Nothing is remembered of requests that name their user in another way, of refusals and of
// users whom another credential stands for, as anonymous ones and those of a token.
func TestCertificates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answer, failure, asked := user.DefaultInfo{Name: "admin"}, error(nil), 0
		c := &certificates{
			headers: []string{"X-Remote-User"}, known: cache.NewLRUExpireCache(mostCertificates),
			inner: authenticator.RequestFunc(func(req *http.Request) (*authenticator.Response, bool, error) {
				asked++
				user := answer
				if byToken := req.Header.Get("Sec-WebSocket-Protocol") != ""; req.TLS != nil && user.Name == "admin" && !byToken {
					user.Extra = map[string][]string{
						"authentication.kubernetes.io/credential-id": {credential(req.TLS.PeerCertificates[0])},
					}
				}
				return &authenticator.Response{User: &user}, failure == nil, failure
			}),
		}
		leaf := &x509.Certificate{Raw: []byte("a"), NotAfter: time.Now().Add(15 * time.Second)}
		ask := func(wantAsked bool, chain []*x509.Certificate, header ...string) {
			t.Helper()
			req := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
			if chain != nil {
				req.TLS = &tls.ConnectionState{PeerCertificates: chain}
			}
			if len(header) > 0 {
				req.Header.Set(header[0], header[1])
			}
			before := asked
			response, ok, err := c.AuthenticateRequest(req)
			if asked > before != wantAsked || ok != (failure == nil) || !errors.Is(err, failure) ||
				ok && response.User.GetName() != answer.Name {
				t.Errorf("asked %v, got %v, %v, %v", asked > before, response, ok, err)
			}
		}
		one := []*x509.Certificate{leaf}
		ask(true, one, "Sec-WebSocket-Protocol", "base64url.bearer.authorization.k8s.io.eA")
		ask(true, one)
		ask(false, one)
		ask(true, one, "Authorization", "Bearer x")
		ask(true, one, "X-Remote-User", "somebody")
		ask(true, one, "x-remote-user", "")
		ask(true, nil)
		ask(true, nil)
		ask(true, []*x509.Certificate{leaf, {Raw: []byte("b"), NotAfter: leaf.NotAfter}})
		ask(true, []*x509.Certificate{{Raw: []byte("ab"), NotAfter: leaf.NotAfter}})
		time.Sleep(certificatesValid + time.Second)
		ask(true, one)
		time.Sleep(5 * time.Second)
		ask(true, one) // it is not valid any more

		other := []*x509.Certificate{{Raw: []byte("c"), NotAfter: time.Now().Add(time.Hour)}}
		answer.Name = user.Anonymous
		ask(true, other)
		ask(true, other)
		failure = errors.New("unknown authority")
		ask(true, other)
		ask(true, other)
		failure, answer.Name = nil, "admin"
		ask(true, other)
		ask(false, other)
	})
}
