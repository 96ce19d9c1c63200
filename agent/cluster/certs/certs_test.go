package certs

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/berthd/berth/internal/atomicfile"
)

func logger(t *testing.T) *slog.Logger { return slog.New(slog.NewTextHandler(t.Output(), nil)) }

// write makes a certificate for a host, and writes the certificate and its key to dir.
func write(t *testing.T, dir, host string, now time.Time) (cert, key string) {
	t.Helper()
	certPEM, keyPEM, err := generate([]string{host}, now)
	if err != nil {
		t.Fatal(err)
	}
	cert, key = filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	put(t, key, keyPEM)
	put(t, cert, certPEM)
	return cert, key
}

func put(t *testing.T, path string, data []byte) {
	t.Helper()
	if err := atomicfile.Write(path, data, 0o600, atomicfile.OverCrash); err != nil {
		t.Fatal(err)
	}
}

// names returns the names of a certificate.
func names(t *testing.T, s Serving) string {
	t.Helper()
	c, err := s.Certificate()
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(c.Leaf.DNSNames, " ")
}

func TestPairFollowsItsFiles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		certFile, keyFile := write(t, dir, "one", time.Now())
		var log bytes.Buffer
		p, err := NewPair(certFile, keyFile, slog.New(slog.NewTextHandler(&log, nil)))
		if err != nil {
			t.Fatal(err)
		}
		for _, step := range []struct {
			name string
			do   func()
			want string
		}{
			{"nothing changed", func() {}, "one"},
			{"both changed", func() { write(t, dir, "two", time.Now()) }, "two"},
			{"half a renewal", func() { put(t, keyFile, []byte("half")) }, "two"},
			{"still half a renewal", func() {}, "two"},
			{"the renewal is whole", func() { write(t, dir, "three", time.Now()) }, "three"},
			{"the files are gone", func() { os.Remove(certFile); os.Remove(keyFile) }, "three"},
			{"and back", func() { write(t, dir, "four", time.Now()) }, "four"},
		} {
			step.do()
			time.Sleep(lookInterval)
			if got := names(t, p); got != step.want {
				t.Errorf("%s: %q, want %q", step.name, got, step.want)
			}
		}
		if n := strings.Count(log.String(), "level=ERROR"); n != 2 {
			t.Errorf("%d errors were told, want one for each trouble:\n%s", n, log.String())
		}
	})
}

func TestPairsThatCannotBeRead(t *testing.T) {
	dir := t.TempDir()
	if _, err := NewPair(filepath.Join(dir, "a"), filepath.Join(dir, "b"), logger(t)); err == nil ||
		!strings.Contains(err.Error(), filepath.Join(dir, "a")) {
		t.Errorf("missing: %v", err)
	}
	certFile, _ := write(t, dir, "one", time.Now())
	_, other := write(t, t.TempDir(), "two", time.Now())
	if _, err := NewPair(certFile, other, logger(t)); err == nil {
		t.Error("another's key was taken")
	}
}

func TestBundleFollowsItsFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		file, _ := write(t, dir, "one", time.Now())
		b, err := NewBundle(file, logger(t))
		if err != nil {
			t.Fatal(err)
		}
		first := b.Pool()
		put(t, file, []byte("no certificate"))
		time.Sleep(lookInterval)
		if !b.Pool().Equal(first) {
			t.Error("the last good authorities are gone")
		}
		write(t, dir, "two", time.Now())
		time.Sleep(lookInterval)
		if b.Pool().Equal(first) {
			t.Error("the new authorities are not there")
		}
	})
	if _, err := NewBundle(filepath.Join(t.TempDir(), "ca"), logger(t)); err == nil {
		t.Error("a missing file was taken")
	}
}

func TestSelfSigned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "pki")
		open := func() *SelfSigned {
			s, err := NewSelfSigned(dir, []string{"node", "192.0.2.1"}, logger(t))
			if err != nil {
				t.Fatal(err)
			}
			return s
		}
		leaf := func(s *SelfSigned) *x509.Certificate {
			c, err := s.Certificate()
			if err != nil {
				t.Fatal(err)
			}
			return c.Leaf
		}
		s := open()
		first := leaf(s)
		if err := first.VerifyHostname("node"); err != nil {
			t.Error(err)
		}
		if err := first.VerifyHostname("192.0.2.1"); err != nil {
			t.Error(err)
		}
		if info, err := os.Stat(s.key()); err != nil || info.Mode() != 0o600 {
			t.Errorf("the key: %v %v", info, err)
		}
		if again := leaf(open()); !again.Equal(first) {
			t.Error("a restart made another certificate")
		}
		time.Sleep(selfSignedLife - renewBefore - time.Hour)
		if !leaf(s).Equal(first) {
			t.Error("it was renewed too early")
		}
		time.Sleep(2 * time.Hour)
		second := leaf(s)
		if second.Equal(first) || time.Until(second.NotAfter) < selfSignedLife-time.Hour {
			t.Errorf("it ends at %v", second.NotAfter)
		}
		if again := leaf(open()); !again.Equal(second) {
			t.Error("the renewed certificate is not on disk")
		}
		// A renewal that fails leaves the current certificate.
		time.Sleep(selfSignedLife - renewBefore + time.Hour)
		s.dir = filepath.Join(dir, "gone", "\x00")
		if !leaf(s).Equal(second) {
			t.Error("the certificate went with the failed renewal")
		}
	})
}

// TestSelfSignedIsSomebodyElses checks that an existing certificate is used, and never overwritten.
// An agent that ends between the two files of a renewal leaves the next key beside the old
// certificate. The next agent finishes the renewal.
func TestSelfSignedHalfRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		if _, err := NewSelfSigned(dir, []string{"node"}, logger(t)); err != nil {
			t.Fatal(err)
		}
		_, key, err := generate([]string{"node"}, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		put(t, filepath.Join(dir, selfSignedKey), key)
		if _, err := NewSelfSigned(dir, []string{"node"}, logger(t)); err == nil {
			t.Error("a certificate that is not due was replaced")
		}
		time.Sleep(selfSignedLife - renewBefore + time.Hour)
		s, err := NewSelfSigned(dir, []string{"node"}, logger(t))
		if err != nil {
			t.Fatal(err)
		}
		if c, err := s.Certificate(); err != nil || time.Until(c.Leaf.NotAfter) < selfSignedLife-time.Hour {
			t.Errorf("%v %v", c, err)
		}
	})
}

func TestSelfSignedIsSomebodyElses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		cert, key, err := generate([]string{"kubelets-own"}, time.Now().Add(-selfSignedLife+time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		put(t, filepath.Join(dir, selfSignedCert), cert)
		put(t, filepath.Join(dir, selfSignedKey), key)
		s, err := NewSelfSigned(dir, []string{"node"}, logger(t))
		if err != nil {
			t.Fatal(err)
		}
		if got := names(t, s); got != "kubelets-own" {
			t.Errorf("it is %q's", got)
		}
		put(t, filepath.Join(dir, selfSignedKey), []byte("broken"))
		if _, err := NewSelfSigned(dir, []string{"node"}, logger(t)); err == nil ||
			!strings.Contains(err.Error(), "remove both files") {
			t.Errorf("a broken pair: %v", err)
		}
	})
}

func TestLimitsOf(t *testing.T) {
	l, err := LimitsOf("VersionTLS13", []string{"TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", "TLS_RSA_WITH_RC4_128_SHA"},
		[]int32{29, 23})
	if err != nil || l.MinVersion != tls.VersionTLS13 || len(l.CipherSuites) != 2 ||
		l.CipherSuites[0] != tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256 ||
		l.CipherSuites[1] != tls.TLS_RSA_WITH_RC4_128_SHA || len(l.Curves) != 2 || l.Curves[0] != tls.X25519 ||
		l.Curves[1] != tls.CurveP256 {
		t.Errorf("%+v %v", l, err)
	}
	for _, tc := range []struct {
		version string
		suites  []string
		want    string
	}{
		{"TLS1.3", nil, "tlsMinVersion"},
		{"", []string{"TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", "ROT13"}, "tlsCipherSuites[1]"},
	} {
		if _, err := LimitsOf(tc.version, tc.suites, nil); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%v: %v", tc, err)
		}
	}
}

// TestServerConfig makes real handshakes. They check the versions, the current certificate, and
// that a client's certificate is requested and accepted.
func TestServerConfig(t *testing.T) {
	dir := t.TempDir()
	certFile, keyFile := write(t, dir, "node", time.Now())
	pair, err := NewPair(certFile, keyFile, logger(t))
	if err != nil {
		t.Fatal(err)
	}
	bundle, err := NewBundle(certFile, logger(t))
	if err != nil {
		t.Fatal(err)
	}
	client, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		authorities func() *x509.CertPool
		limits      Limits
		client      *tls.Config
		shown       int
		want        string
	}{
		"a client without a certificate": {bundle.Pool, Limits{}, &tls.Config{}, 0, ""},
		"a client with one": {
			bundle.Pool, Limits{}, &tls.Config{Certificates: []tls.Certificate{client}}, 1, "",
		},
		"nobody asks for it": {nil, Limits{}, &tls.Config{Certificates: []tls.Certificate{client}}, 0, ""},
		"too old": {
			bundle.Pool,
			Limits{},
			&tls.Config{MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11}, 0,
			"protocol version",
		},
		"older than wanted": {
			bundle.Pool,
			Limits{MinVersion: tls.VersionTLS13},
			&tls.Config{MaxVersion: tls.VersionTLS12}, 0,
			"protocol version",
		},
		"another cipher suite": {
			bundle.Pool,
			Limits{CipherSuites: []uint16{tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384}},
			&tls.Config{
				MaxVersion: tls.VersionTLS12, CipherSuites: []uint16{tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256},
			}, 0, "handshake failure",
		},
	} {
		t.Run(name, func(t *testing.T) {
			ours, theirs := net.Pipe()
			server := tls.Server(ours, ServerConfig(pair, tc.authorities, tc.limits))
			failed := make(chan error, 1)
			go func() {
				failed <- server.HandshakeContext(t.Context())
				ours.Close()
			}()
			tc.client.InsecureSkipVerify = true
			conn := tls.Client(theirs, tc.client)
			err := conn.HandshakeContext(t.Context())
			if err == nil {
				_, _ = conn.Read(make([]byte, 1)) // only now TLS 1.3's server reports that it ended
			}
			theirs.Close()
			serverErr := <-failed
			if (tc.want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), tc.want) {
				t.Fatalf("the client: %v, the server: %v", err, serverErr)
			}
			if err != nil {
				return
			}
			if got := len(server.ConnectionState().PeerCertificates); got != tc.shown {
				t.Errorf("%d certificates were shown, want %d", got, tc.shown)
			}
			if got := conn.ConnectionState().PeerCertificates[0].DNSNames[0]; got != "node" {
				t.Errorf("the server's certificate is %q's", got)
			}
		})
	}
}
