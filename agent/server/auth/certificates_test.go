package auth

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"io"
	"math/big"
	"net"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"
	"weak"
)

// Certificates that nobody has signed cost their verification once, not with each request, and many
// of them cost none.
func TestStrangersCertificatesCostLittle(t *testing.T) {
	stranger := newAuthority(t)
	leaf := stranger.client(t, "u", x509.ExtKeyUsageClientAuth, time.Now().Add(time.Hour))
	pool := newAuthority(t).pool()
	who := authenticator{certificates: newCertificates(func() *x509.CertPool { return pool })}
	failed := &who.certificates.failed
	shown := func(certs ...*x509.Certificate) error {
		_, err := who.user(request("GET", "/pods", certs))
		return err
	}
	if err := shown(leaf); err == nil || len(failed.entries) != 1 {
		t.Fatalf("%v, %d failures are remembered", err, len(failed.entries))
	}
	remembered := errors.New("remembered")
	for k, e := range failed.entries {
		failed.entries[k] = entry[error]{remembered, e.until}
	}
	if err := shown(leaf); !errors.Is(err, remembered) {
		t.Errorf("verified again: %v", err)
	}
	pool = stranger.pool() // the authorities have changed
	if err := shown(leaf); err != nil {
		t.Errorf("with its authority: %v", err)
	}
	if err := shown(leaf, stranger.cert, stranger.cert); err != nil {
		t.Errorf("with two intermediates: %v", err)
	}
	if err := shown(leaf, stranger.cert, stranger.cert, stranger.cert); err == nil ||
		!strings.Contains(err.Error(), "4 certificates were shown, more than 3") {
		t.Errorf("many: %v", err)
	}
}

// TestFailedCertificatesAreForgotten shows a certificate that cannot be verified: after its
// request, nothing holds it, though its failure is remembered.
func TestFailedCertificatesAreForgotten(t *testing.T) {
	known := newAuthority(t)
	who := authenticator{certificates: newCertificates(known.pool)}
	held := func() weak.Pointer[x509.Certificate] {
		name := strings.Repeat("ü", 50)
		leaf := newAuthority(t).client(t, name, x509.ExtKeyUsageClientAuth, time.Now().Add(time.Hour))
		if _, err := who.user(request("GET", "/pods", []*x509.Certificate{leaf})); err == nil {
			t.Error("a stranger is known")
		}
		// the error of a certificate without the right use names all that it has
		unfit := known.client(t, name, x509.ExtKeyUsageServerAuth, time.Now().Add(-time.Hour))
		if _, err := who.user(request("GET", "/pods", []*x509.Certificate{unfit})); err == nil {
			t.Error("an unfit certificate is good")
		}
		return weak.Make(leaf)
	}()
	waitUntil(t, "the certificate is collected", func() bool {
		runtime.GC()
		return held.Value() == nil
	})
	if n := len(who.certificates.failed.entries); n != 2 {
		t.Errorf("%d failures are remembered", n)
	}
	for _, e := range who.certificates.failed.entries {
		if text := e.value.Error(); len(text) > maxReason || !utf8.ValidString(text) {
			t.Errorf("%d bytes are remembered: %q", len(text), text)
		}
	}
}

// waitUntil waits until something is true.
func waitUntil(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !is(); runtime.Gosched() {
		if time.Now().After(end) {
			t.Fatalf("not after a minute: %s", what)
		}
	}
}

func TestCut(t *testing.T) {
	for text, want := range map[string]string{
		"": "", "abc": "abc", "abcde": "abcd", "abc\u00fc": "abc", "ab\u00fcd": "ab\u00fc", "a\xffb": "ab",
	} {
		if got := cut(text, 4); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

// largeCertificate is one that is larger than a caller's may be.
func largeCertificate(t *testing.T, by *authority) *x509.Certificate {
	t.Helper()
	return sign(t, &x509.Certificate{
		SerialNumber: big.NewInt(3), Subject: pkix.Name{CommonName: "u"}, NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage:     []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		ExtraExtensions: []pkix.Extension{{Id: []int{1, 2, 3}, Value: make([]byte, maxShownBytes)}},
	}, by.cert, by.key, by.key)
}

// TestLargeCertificates shows certificates that are good but large: they are not verified, and
// nothing is remembered of them.
func TestLargeCertificates(t *testing.T) {
	ca := newAuthority(t)
	who := authenticator{certificates: newCertificates(ca.pool)}
	who.certificates.verify = func([]*x509.Certificate, *x509.CertPool) error {
		t.Error("they are verified")
		return nil
	}
	_, err := who.user(request("GET", "/pods", []*x509.Certificate{largeCertificate(t, ca)}))
	if err == nil || !strings.Contains(err.Error(), "bytes, more than 32768") {
		t.Errorf("the error is %v", err)
	}
	if n := len(who.certificates.failed.entries); n != 0 {
		t.Errorf("%d failures are remembered", n)
	}
}

// TestRefuseLarge connects with certificates that are good: the handshake with a large one fails.
func TestRefuseLarge(t *testing.T) {
	ca := newAuthority(t)
	leaf := ca.client(t, "u", x509.ExtKeyUsageClientAuth, time.Now().Add(time.Hour))
	before := 0
	inner := &tls.Config{
		Certificates: []tls.Certificate{{Certificate: [][]byte{ca.cert.Raw}, PrivateKey: ca.key}},
		ClientAuth:   tls.RequestClientCert,
		VerifyConnection: func(tls.ConnectionState) error {
			before++
			return nil
		},
	}
	outer := &tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return inner, nil }}
	for name, config := range map[string]*tls.Config{"one": inner, "one by client": outer} {
		for _, tc := range []struct {
			cert *x509.Certificate
			good bool
		}{{leaf, true}, {largeCertificate(t, ca), false}} {
			server, client := net.Pipe()
			go func() {
				defer client.Close()
				conn := tls.Client(client, &tls.Config{
					InsecureSkipVerify: true,
					Certificates:       []tls.Certificate{{Certificate: [][]byte{tc.cert.Raw}, PrivateKey: ca.key}},
				})
				if conn.HandshakeContext(t.Context()) == nil {
					_, _ = io.Copy(io.Discard, conn)
				}
			}()
			err := tls.Server(server, RefuseLarge(config)).HandshakeContext(t.Context())
			server.Close()
			if (err == nil) != tc.good || !tc.good && !strings.Contains(err.Error(), "bytes, more than 32768") {
				t.Errorf("%s, %d bytes: %v", name, len(tc.cert.Raw), err)
			}
		}
	}
	if before != 2 {
		t.Errorf("the config's own check was asked %d times", before)
	}
}

// TestVerificationsAreBounded has many callers show certificates at the same time: as many are
// verified at once as may be, and who leaves does not wait on.
func TestVerificationsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ca := newAuthority(t)
		who := authenticator{certificates: newCertificates(ca.pool)}
		var working atomic.Int64
		release := make(chan struct{})
		who.certificates.verify = func([]*x509.Certificate, *x509.CertPool) error {
			if n := working.Add(1); n > maxVerifying() {
				t.Errorf("%d verifications at once", n)
			}
			defer working.Add(-1)
			<-release
			return errors.New("no")
		}
		most := int(maxVerifying())
		show := func(ctx context.Context) error {
			leaf := ca.client(t, "u", x509.ExtKeyUsageClientAuth, time.Now().Add(time.Hour))
			_, err := who.user(request("GET", "/pods", []*x509.Certificate{leaf}).WithContext(ctx))
			return err
		}
		var all sync.WaitGroup
		for range 3 * most {
			all.Go(func() {
				if err := show(t.Context()); err == nil || !strings.Contains(err.Error(), ": no") {
					t.Errorf("one that waited: %v", err)
				}
			})
		}
		synctest.Wait()
		if n := working.Load(); n != int64(most) {
			t.Errorf("%d are verified, not %d", n, most)
		}
		ctx, leave := context.WithCancel(t.Context())
		left := make(chan error, 1)
		go func() { left <- show(ctx) }()
		synctest.Wait()
		leave()
		if err := <-left; !errors.Is(err, context.Canceled) {
			t.Errorf("one that left: %v", err)
		}
		close(release)
		all.Wait()
	})
}
