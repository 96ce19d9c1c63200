package auth

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"errors"
	"log/slog"
	"math/big"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
)

// authority signs client certificates for tests.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ca"}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	return &authority{sign(t, template, template, key, key), key}
}

func sign(t *testing.T, template, parent *x509.Certificate, key, by *ecdsa.PrivateKey) *x509.Certificate {
	t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, by)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

// client returns a certificate with that use, which ends at a time.
func (a *authority) client(
	t *testing.T, name string, use x509.ExtKeyUsage, end time.Time, groups ...string,
) *x509.Certificate {
	t.Helper()
	return sign(t, &x509.Certificate{
		SerialNumber: big.NewInt(2),
		Subject:      pkix.Name{CommonName: name, Organization: groups},
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     end,
		ExtKeyUsage:  []x509.ExtKeyUsage{use},
	}, a.cert, a.key, a.key)
}

func (a *authority) pool() *x509.CertPool {
	p := x509.NewCertPool()
	p.AddCert(a.cert)
	return p
}

// cluster is an API server that knows tokens and what users may do.
type cluster struct {
	tokens map[string]authenticationv1.UserInfo
	// rules are lines "user verb subresource", the user or a group.
	rules []string
	down  error
	// asked are the questions that reached it.
	asked []string
}

func (c *cluster) token(_ context.Context, token string) (authenticationv1.TokenReviewStatus, error) {
	c.asked = append(c.asked, "token "+token)
	if c.down != nil {
		return authenticationv1.TokenReviewStatus{}, c.down
	}
	u, ok := c.tokens[token]
	return authenticationv1.TokenReviewStatus{Authenticated: ok, User: u}, nil
}

func (c *cluster) access(
	_ context.Context, spec authorizationv1.SubjectAccessReviewSpec,
) (authorizationv1.SubjectAccessReviewStatus, error) {
	ra := spec.ResourceAttributes
	c.asked = append(c.asked, spec.User+" "+ra.Verb+" "+ra.Subresource)
	if ra.Resource != "nodes" || ra.Name != "node" || ra.Version != "v1" || ra.Group != "" || ra.Namespace != "" ||
		spec.NonResourceAttributes != nil {
		return authorizationv1.SubjectAccessReviewStatus{}, errors.New("asked about something else than the node")
	}
	for _, who := range append([]string{spec.User}, spec.Groups...) {
		if slices.Contains(c.rules, who+" "+ra.Verb+" "+ra.Subresource) {
			return authorizationv1.SubjectAccessReviewStatus{Allowed: true}, nil
		}
	}
	return authorizationv1.SubjectAccessReviewStatus{}, c.down
}

// lately reports whether a token was good lately: none was.
func (c *cluster) lately(string) bool { return false }

// newGuard makes a guard before that API server.
func newGuard(t *testing.T, cfg Config, authorities func() *x509.CertPool, c *cluster) *Guard {
	t.Helper()
	cfg.Node = "node"
	g := New(cfg, Deps{Authorities: authorities, Logger: slog.New(slog.NewTextHandler(t.Output(), nil))})
	if c != nil {
		g.may.reviews = c
		if cfg.Tokens {
			g.who.tokens = c
		}
	}
	return g
}

// request makes a request with certificates and headers, in pairs.
func request(method, path string, certs []*x509.Certificate, headers ...string) *http.Request {
	r := httptest.NewRequest(method, "https://node:10250"+path, nil)
	r.TLS = &tls.ConnectionState{PeerCertificates: certs}
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	return r
}

func TestGuard(t *testing.T) {
	ca, stranger := newAuthority(t), newAuthority(t)
	soon, over := time.Now().Add(time.Hour), time.Now().Add(-time.Minute)
	certs := map[string][]*x509.Certificate{
		"":         nil,
		"admin":    {ca.client(t, "admin", x509.ExtKeyUsageClientAuth, soon, "admins")},
		"nobody":   {ca.client(t, "nobody", x509.ExtKeyUsageClientAuth, soon)},
		"reader":   {ca.client(t, "reader", x509.ExtKeyUsageClientAuth, soon)},
		"over":     {ca.client(t, "admin", x509.ExtKeyUsageClientAuth, over, "admins")},
		"server":   {ca.client(t, "admin", x509.ExtKeyUsageServerAuth, soon, "admins")},
		"stranger": {stranger.client(t, "admin", x509.ExtKeyUsageClientAuth, soon, "admins")},
		"unnamed":  {ca.client(t, "", x509.ExtKeyUsageClientAuth, soon, "admins")},
	}
	c := &cluster{
		tokens: map[string]authenticationv1.UserInfo{"t0k": {
			Username: "prometheus",
			UID:      "7",
			Groups:   []string{"monitoring"},
		}},
		rules: []string{
			"admins get proxy", "admins create proxy", "prometheus get metrics", "reader get proxy",
			"system:authenticated get healthz", "system:unauthenticated get healthz",
			"monitoring get pods",
		},
	}
	for _, tc := range []struct {
		name, cert, method, path, token string
		anonymous                       bool
		code                            int
		body                            string
	}{
		{name: "an administrator", cert: "admin", path: "/containerLogs/a/b/c", code: 200},
		{name: "an administrator's command", cert: "admin", path: "/exec/a/b/c", code: 200},
		{
			name: "a command of one who may read",
			cert: "reader",
			path: "/exec/a/b/c",
			code: 403,
			body: "Forbidden (user=reader, verb=create, resource=nodes, subresource(s)=[proxy])\n",
		},
		{name: "logs of one who may read", cert: "reader", path: "/containerLogs/a/b/c", code: 200},
		{name: "pods of one who may read everything", cert: "reader", path: "/pods", code: 200},
		{
			name: "nobody's rights",
			cert: "nobody",
			path: "/pods",
			code: 403,
			body: "Forbidden (user=nobody, verb=get, resource=nodes, subresource(s)=[pods proxy])\n",
		},
		{name: "everybody's right", cert: "nobody", path: "/healthz", code: 200},
		{name: "a certificate that is over", cert: "over", path: "/pods", code: 401},
		{name: "a server's certificate", cert: "server", path: "/pods", code: 401},
		{name: "a stranger's certificate", cert: "stranger", path: "/pods", code: 401},
		{
			name:      "a stranger's certificate is not nobody's",
			cert:      "stranger",
			path:      "/healthz",
			anonymous: true,
			code:      401,
		},
		{name: "a certificate without a name", cert: "unnamed", path: "/pods", code: 401},
		{name: "nothing", path: "/healthz", code: 401},
		{name: "nothing, let in", path: "/healthz", anonymous: true, code: 200},
		{
			name:      "nothing, let in, and no right",
			path:      "/pods",
			anonymous: true,
			code:      403,
			body:      "Forbidden (user=system:anonymous, verb=get, resource=nodes, subresource(s)=[pods proxy])\n",
		},
		{name: "a token", token: "t0k", path: "/metrics", code: 200},
		{name: "a token's group", token: "t0k", path: "/pods", code: 200},
		{
			name:  "a token without that right",
			token: "t0k",
			path:  "/containerLogs/a/b/c",
			code:  403,
			body:  "Forbidden (user=prometheus, verb=get, resource=nodes, subresource(s)=[proxy])\n",
		},
		{name: "an unknown token", token: "x", path: "/metrics", code: 401},
		{name: "an unknown token is not nobody's", token: "x", path: "/healthz", anonymous: true, code: 401},
		{name: "a good token beside a bad certificate", cert: "stranger", token: "t0k", path: "/metrics", code: 200},
		{
			name:   "a method without a verb",
			cert:   "reader",
			method: http.MethodHead,
			path:   "/containerLogs/a/b/c",
			code:   403,
			body:   "Forbidden (user=reader, verb=, resource=nodes, subresource(s)=[proxy])\n",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			g := newGuard(t,
				Config{
					Tokens:     true,
					TokenTTL:   time.Minute,
					AllowedTTL: time.Minute,
					RefusedTTL: time.Minute,
					Anonymous:  tc.anonymous,
				}, ca.pool, c)
			if tc.method == "" {
				tc.method = http.MethodGet
			}
			r := request(tc.method, tc.path, certs[tc.cert])
			if tc.token != "" {
				r.Header.Set("Authorization", "Bearer "+tc.token)
			}
			w := httptest.NewRecorder()
			let := g.Check(w, r, tc.path)
			if let != (tc.code == 200) || w.Code != tc.code {
				t.Errorf("let in %t, code %d, %q", let, w.Code, w.Body)
			}
			want := tc.body
			if tc.code == 401 {
				want = "Unauthorized"
			}
			if got := w.Body.String(); got != want {
				t.Errorf("the body is %q, want %q", got, want)
			}
			if let && r.Header.Get("Authorization") != "" {
				t.Error("the token goes on to the handler")
			}
		})
	}
}

// TestGuardWithoutCluster shows a node alone: certificates are known, tokens are not, and only a
// mode that allows everything allows anything.
func TestGuardWithoutCluster(t *testing.T) {
	ca := newAuthority(t)
	cert := []*x509.Certificate{ca.client(t, "admin", x509.ExtKeyUsageClientAuth, time.Now().Add(time.Hour))}
	for name, tc := range map[string]struct {
		all         bool
		authorities func() *x509.CertPool
		request     *http.Request
		want        int
	}{
		"a certificate":          {true, ca.pool, request(http.MethodGet, "/exec/a/b/c", cert), 200},
		"a certificate, no mode": {false, ca.pool, request(http.MethodGet, "/exec/a/b/c", cert), 403},
		"a token": {
			true, ca.pool, request(http.MethodGet, "/pods", nil, "Authorization", "Bearer x"), 401,
		},
		"nothing":        {true, ca.pool, request(http.MethodGet, "/pods", nil), 401},
		"no authorities": {true, nil, request(http.MethodGet, "/pods", cert), 401},
		"authorities that are gone": {
			true, func() *x509.CertPool { return nil }, request(http.MethodGet, "/pods", cert), 401,
		},
	} {
		g := newGuard(t, Config{AllowAll: tc.all, Tokens: true}, tc.authorities, nil)
		w := httptest.NewRecorder()
		g.Check(w, tc.request, tc.request.URL.Path)
		if w.Code != tc.want {
			t.Errorf("%s: %d %s", name, w.Code, w.Body)
		}
	}
}

// TestReviewsThatFail shows that an API server that cannot be asked is no permission, and that its
// failure is not remembered.
func TestReviewsThatFail(t *testing.T) {
	c := &cluster{
		tokens: map[string]authenticationv1.UserInfo{"t": {Username: "u"}},
		rules:  []string{"u get metrics"},
		down:   errors.New("gone"),
	}
	g := newGuard(t, Config{Tokens: true, TokenTTL: time.Hour, AllowedTTL: time.Hour, RefusedTTL: time.Hour}, nil, c)
	ask := func(path string) (int, string) {
		w := httptest.NewRecorder()
		g.Check(w, request(http.MethodGet, path, nil, "Authorization", "Bearer t"), path)
		return w.Code, w.Body.String()
	}
	if code, _ := ask("/metrics"); code != 401 {
		t.Errorf("no token review: %d", code)
	}
	c.down = nil
	if code, _ := ask("/metrics"); code != 200 {
		t.Errorf("it is back: %d", code)
	}
	c.down = errors.New("gone")
	if code, _ := ask("/metrics"); code != 200 {
		t.Errorf("what is remembered: %d", code)
	}
	if code, body := ask("/stats/summary"); code != 500 ||
		body != "Authorization error (user=u, verb=get, resource=nodes, subresource=stats)" {
		t.Errorf("no access review: %d %q", code, body)
	}
}

// TestAnswersAreRemembered shows for how long.
func TestAnswersAreRemembered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &cluster{
			tokens: map[string]authenticationv1.UserInfo{"t": {Username: "u"}}, rules: []string{"u get metrics"},
		}
		g := newGuard(t,
			Config{Tokens: true, TokenTTL: 2 * time.Minute, AllowedTTL: 5 * time.Minute, RefusedTTL: 30 * time.Second},
			nil, c)
		for _, step := range []struct {
			wait time.Duration
			path string
			want []string
		}{
			{0, "/metrics", []string{"token t", "u get metrics"}},
			{time.Minute, "/metrics", nil},
			{0, "/stats", []string{"u get stats"}},
			{20 * time.Second, "/stats", nil},
			{20 * time.Second, "/stats", []string{"u get stats"}},
			{time.Minute, "/metrics", []string{"token t"}},
			{3 * time.Minute, "/metrics", []string{"token t", "u get metrics"}},
		} {
			time.Sleep(step.wait)
			c.asked = nil
			g.Check(httptest.NewRecorder(), request(http.MethodGet, step.path, nil, "Authorization", "Bearer t"),
				step.path)
			if !slices.Equal(c.asked, step.want) {
				t.Errorf("%s after %v: asked %q, want %q", step.path, step.wait, c.asked, step.want)
			}
		}
	})
}

// TestUsersAreToldApart shows that what one user may is not remembered for another who looks alike.
func TestUsersAreToldApart(t *testing.T) {
	seen := map[key]User{}
	for _, u := range []User{
		{Name: "a"},
		{Name: "a", UID: "1"},
		{Name: "a", Groups: []string{"g"}},
		{Name: "a", Groups: []string{"g", "h"}},
		{Name: "a", Groups: []string{"gh"}},
		{Name: "a", Extra: map[string][]string{"k": {"v"}}},
		{Name: "a", Extra: map[string][]string{"k": {"v", ""}}},
		{Name: "a", Extra: map[string][]string{"k": {}}},
		{Name: "a", Extra: map[string][]string{"k": {"v"}, "l": {}}},
	} {
		k := questionOf(u, Attributes{"get", "metrics"})
		if other, ok := seen[k]; ok {
			t.Errorf("%+v is taken for %+v", u, other)
		}
		seen[k] = u
	}
}

// TestTokenInWebSocket shows how browsers send a token, and that nobody behind sees it.
func TestTokenInWebSocket(t *testing.T) {
	token := tokenProtocol + base64.RawURLEncoding.EncodeToString([]byte("t"))
	c := &cluster{tokens: map[string]authenticationv1.UserInfo{"t": {Username: "u"}}, rules: []string{"u create proxy"}}
	for name, tc := range map[string]struct {
		headers []string
		want    int
	}{
		"with a protocol":      {[]string{"Upgrade", "websocket", protocolHeader, "v5.channel.k8s.io, " + token}, 200},
		"nothing to be spoken": {[]string{"Upgrade", "websocket", protocolHeader, token}, 401},
		"not encoded": {
			[]string{"Upgrade", "websocket", protocolHeader, "v5.channel.k8s.io, " + tokenProtocol + "%"}, 401,
		},
		"not a WebSocket":       {[]string{protocolHeader, "v5.channel.k8s.io, " + token}, 401},
		"another authorization": {[]string{"Authorization", "Basic dDp0"}, 401},
		"an empty token":        {[]string{"Authorization", "Bearer "}, 401},
	} {
		g := newGuard(t, Config{Tokens: true}, nil, c)
		r := request(http.MethodGet, "/exec/a/b/c", nil, tc.headers...)
		w := httptest.NewRecorder()
		g.Check(w, r, "/exec/a/b/c")
		if w.Code != tc.want {
			t.Errorf("%s: %d %s", name, w.Code, w.Body)
		}
		if left := r.Header.Get(protocolHeader); tc.want == 200 &&
			(strings.Contains(left, "bearer") || left != "v5.channel.k8s.io") {
			t.Errorf("%s: %q is left", name, left)
		}
	}
}

// silent is an API server that says nothing about tokens until answers is closed.
type silent struct{ answers chan struct{} }

func (s silent) token(context.Context, string) (authenticationv1.TokenReviewStatus, error) {
	<-s.answers
	return authenticationv1.TokenReviewStatus{}, nil
}

func (s silent) lately(token string) bool { return token == "good" }

func (s silent) access(
	context.Context, authorizationv1.SubjectAccessReviewSpec,
) (authorizationv1.SubjectAccessReviewStatus, error) {
	<-s.answers
	return authorizationv1.SubjectAccessReviewStatus{}, nil
}

// The same is so for reviews of a user's rights, which keep no place of another user.
func TestKnownCallersThatWaitAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := silent{make(chan struct{})}
		g := newGuard(t, Config{Anonymous: true}, nil, nil)
		g.may.reviews = s
		ask := func() int {
			w := httptest.NewRecorder()
			g.Check(w, request(http.MethodGet, "/pods", nil), "/pods")
			return w.Code
		}
		for range maxWaiting {
			go ask()
		}
		synctest.Wait()
		if code := ask(); code != http.StatusTooManyRequests {
			t.Errorf("one too many: %d", code)
		}
		another := make(chan error, 1)
		go func() {
			_, err := g.may.may(t.Context(), User{Name: "another"}, Attributes{Verb: "get"})
			another <- err
		}()
		synctest.Wait()
		close(s.answers)
		if err := <-another; err != nil {
			t.Errorf("another user: %v", err)
		}
		synctest.Wait()
		if len(g.may.waiting) > 0 {
			t.Errorf("still waiting are %v", g.may.waiting)
		}
		if code := ask(); code != http.StatusForbidden {
			t.Errorf("when nobody waits any more: %d", code)
		}
	})
}

// While the API server is silent, so many requests with tokens of nobody wait for it; each holds
// its headers. The others are told at once to come again, and take no place of tokens that were
// good lately.
func TestUnknownCallersThatWaitAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := silent{make(chan struct{})}
		g := newGuard(t, Config{Tokens: true, TokenTTL: time.Hour}, nil, nil)
		g.who.tokens = s
		ask := func(token string) *httptest.ResponseRecorder {
			w := httptest.NewRecorder()
			g.Check(w, request(http.MethodGet, "/pods", nil, "Authorization", "Bearer "+token), "/pods")
			return w
		}
		for range maxWaiting {
			go ask("nobody's")
		}
		synctest.Wait()
		began := time.Now()
		for _, token := range []string{"nobody's", "another"} {
			w := ask(token)
			if w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") == "" || time.Since(began) != 0 {
				t.Errorf("%s, one too many: %d %q after %s", token, w.Code, w.Body, time.Since(began))
			}
		}
		good := make(chan int, 1)
		go func() { good <- ask("good").Code }()
		synctest.Wait()
		close(s.answers)
		if code := <-good; code != http.StatusUnauthorized {
			t.Errorf("a token that was good lately: %d", code)
		}
		synctest.Wait()
		if w := ask("another"); w.Code != http.StatusUnauthorized {
			t.Errorf("when nobody waits any more: %d", w.Code)
		}
	})
}

// Whoever asks again and again for what it may not have does not fill the log.
func TestRefusalsDoNotFillTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		c := &cluster{tokens: map[string]authenticationv1.UserInfo{"t": {Username: "pod"}}}
		g := newGuard(t, Config{Tokens: true, TokenTTL: 24 * time.Hour}, nil, c)
		g.log = slog.New(slog.NewTextHandler(&log, nil))
		ask := func() {
			for i := range 1000 {
				r := request("GET", "/pods/"+strings.Repeat("x", i), nil, "Authorization", "Bearer t")
				if g.Check(httptest.NewRecorder(), r, "/pods/") {
					t.Fatal("it was let in")
				}
			}
		}
		for _, want := range []int{1, 2} {
			ask()
			if lines := strings.Count(log.String(), "level=INFO msg=\"request forbidden\" user=pod verb=get"); lines != want {
				t.Errorf("%d lines, want %d", lines, want)
			}
			time.Sleep(time.Hour)
		}
		c.down = errors.New("down")
		ask()
		if lines := strings.Count(log.String(), "level=ERROR"); lines != 1 {
			t.Errorf("%d errors, want 1", lines)
		}
	})
}
