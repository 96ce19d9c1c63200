package certs

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/berthd/berth/internal/atomicfile"
)

const (
	// selfSignedCert and selfSignedKey are the files of a certificate that the agent makes, in the
	// certificates' directory. The names are the kubelet's.
	selfSignedCert, selfSignedKey = "kubelet.crt", "kubelet.key"
	// selfSignedLife is how long such a certificate is valid. renewBefore is how long before its
	// end the agent makes a new one.
	selfSignedLife = 365 * 24 * time.Hour
	renewBefore    = 30 * 24 * time.Hour
)

// SelfSigned is the certificate of a node that was given none, in dir/kubelet.crt and
// dir/kubelet.key. The files may be of another owner, such as a kubelet. The agent renews a
// certificate that it has made before it expires. Make it with [NewSelfSigned].
type SelfSigned struct {
	dir   string
	hosts []string
	log   *slog.Logger

	mu   sync.Mutex
	pair *Pair
}

// NewSelfSigned uses the certificate in dir, or makes one for these names and IPs. The first of
// them is its subject.
func NewSelfSigned(dir string, hosts []string, log *slog.Logger) (*SelfSigned, error) {
	s := &SelfSigned{dir: dir, hosts: hosts, log: log}
	_, certErr := os.Stat(s.cert())
	_, keyErr := os.Stat(s.key())
	if certErr != nil || keyErr != nil || s.halfRenewed() {
		if err := s.make(); err != nil {
			return nil, err
		}
	}
	if err := s.open(); err != nil {
		return nil, fmt.Errorf("%w (remove both files to have new ones made)", err)
	}
	_, err := s.Certificate()
	return s, err
}

// halfRenewed reports whether an agent ended after it had written the key of the next certificate:
// the key is a good one, and the certificate is the agent's own, is due, and has another key.
func (s *SelfSigned) halfRenewed() bool {
	certPEM, certErr := os.ReadFile(s.cert())
	keyPEM, keyErr := os.ReadFile(s.key())
	cert, _ := pem.Decode(certPEM)
	key, _ := pem.Decode(keyPEM)
	if certErr != nil || keyErr != nil || cert == nil || key == nil {
		return false
	}
	c, err := x509.ParseCertificate(cert.Bytes)
	if err != nil || !s.due(c) {
		return false
	}
	next, err := x509.ParseECPrivateKey(key.Bytes)
	return err == nil && !next.PublicKey.Equal(c.PublicKey)
}

func (s *SelfSigned) cert() string { return filepath.Join(s.dir, selfSignedCert) }
func (s *SelfSigned) key() string  { return filepath.Join(s.dir, selfSignedKey) }

func (s *SelfSigned) open() (err error) {
	s.pair, err = NewPair(s.cert(), s.key(), s.log)
	return err
}

// Certificate returns the current certificate. It makes a new one first if the current one has
// nearly expired.
func (s *SelfSigned) Certificate() (*tls.Certificate, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c, err := s.pair.Certificate()
	if err != nil || !s.due(c.Leaf) {
		return c, err
	}
	s.log.Info("the node's self-signed certificate is renewed", "file", s.cert(), "ends", c.Leaf.NotAfter)
	err = s.make()
	if err == nil {
		err = s.open()
	}
	if err != nil {
		s.log.Error("the node's self-signed certificate could not be renewed", "file", s.cert(), "err", err)
		return c, nil
	}
	return s.pair.Certificate()
}

// due reports whether a certificate has nearly expired and the agent made it.
func (s *SelfSigned) due(c *x509.Certificate) bool {
	return time.Until(c.NotAfter) < renewBefore && c.Issuer.String() == c.Subject.String() &&
		c.Subject.CommonName == s.hosts[0]
}

// make makes a key and its certificate. It writes the key first: [SelfSigned.halfRenewed] tells by
// the old certificate that nobody else made the pair.
func (s *SelfSigned) make() error {
	cert, key, err := generate(s.hosts, time.Now())
	if err != nil {
		return fmt.Errorf("making a self-signed certificate: %w", err)
	}
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return fmt.Errorf("making the certificates' directory: %w", err)
	}
	for _, f := range []struct {
		path string
		mode os.FileMode
		data []byte
	}{{s.key(), 0o600, key}, {s.cert(), 0o644, cert}} {
		if err := atomicfile.Write(f.path, f.data, f.mode, atomicfile.OverPowerLoss); err != nil {
			return fmt.Errorf("writing %s: %w", f.path, err)
		}
	}
	return nil
}

// generate returns a certificate and its key as PEM.
func generate(hosts []string, now time.Time) (certPEM, keyPEM []byte, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, nil, err
	}
	template := &x509.Certificate{
		SerialNumber:          serial,
		Subject:               pkix.Name{CommonName: hosts[0]},
		NotBefore:             now.Add(-5 * time.Minute),
		NotAfter:              now.Add(selfSignedLife),
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true,
	}
	for _, h := range hosts {
		if ip := net.ParseIP(h); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, h)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, nil, err
	}
	keyDER, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, nil, err
	}
	certPEM = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return certPEM, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER}), nil
}
