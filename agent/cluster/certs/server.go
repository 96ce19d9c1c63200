package certs

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"sync"
)

// Serving is a certificate that a server shows: a [Pair] or a [SelfSigned].
type Serving interface {
	Certificate() (*tls.Certificate, error)
}

// Limits are a server's requirements for TLS.
type Limits struct {
	// MinVersion is a version of crypto/tls; zero means TLS 1.2.
	MinVersion uint16
	// CipherSuites are those of TLS 1.2 and older; empty means Go's.
	CipherSuites []uint16
	// Curves are the key exchanges, the preferred one first; empty means Go's.
	Curves []tls.CurveID
}

// LimitsOf reads the values of the config: tlsMinVersion (VersionTLS12, …), tlsCipherSuites by
// their IANA names, and tlsCurvePreferences by their IANA numbers.
func LimitsOf(minVersion string, suites []string, curves []int32) (Limits, error) {
	var l Limits
	versions := map[string]uint16{
		"":             0,
		"VersionTLS10": tls.VersionTLS10,
		"VersionTLS11": tls.VersionTLS11,
		"VersionTLS12": tls.VersionTLS12,
		"VersionTLS13": tls.VersionTLS13,
	}
	var ok bool
	if l.MinVersion, ok = versions[minVersion]; !ok {
		return l, fmt.Errorf("tlsMinVersion: %q is no TLS version: want VersionTLS12 or VersionTLS13", minVersion)
	}
	known := map[string]uint16{}
	for _, s := range append(tls.CipherSuites(), tls.InsecureCipherSuites()...) {
		known[s.Name] = s.ID
	}
	for i, name := range suites {
		id, ok := known[name]
		if !ok {
			return l, fmt.Errorf("tlsCipherSuites[%d]: %q is no cipher suite that Go knows", i, name)
		}
		l.CipherSuites = append(l.CipherSuites, id)
	}
	for _, id := range curves {
		l.Curves = append(l.Curves, tls.CurveID(id))
	}
	return l, nil
}

// ServerConfig returns the TLS config of a server. It asks clients for a certificate, of the
// authorities if there are any, and accepts any certificate here: the authentication of each
// request verifies it.
func ServerConfig(cert Serving, authorities func() *x509.CertPool, limits Limits) *tls.Config {
	base := &tls.Config{
		MinVersion: tls.VersionTLS12, CipherSuites: limits.CipherSuites, CurvePreferences: limits.Curves,
		NextProtos:     []string{"h2", "http/1.1"},
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return cert.Certificate() },
	}
	if limits.MinVersion != 0 {
		base.MinVersion = limits.MinVersion
	}
	if authorities == nil {
		return base
	}
	base.ClientAuth = tls.RequestClientCert
	// The authorities' names go to clients, which use them to choose a certificate.
	var mu sync.Mutex
	current := base.Clone()
	outer := base.Clone()
	outer.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		pool := authorities()
		mu.Lock()
		defer mu.Unlock()
		if current.ClientCAs != pool {
			current = base.Clone()
			current.ClientCAs = pool
		}
		return current, nil
	}
	return outer
}
