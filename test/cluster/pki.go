package cluster

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// lifetime is how long a certificate is valid, unless its subject says otherwise.
const lifetime = 24 * time.Hour

// age is how old certificates are when they are made, so that a node whose clock is an hour behind
// accepts them, too.
const age = 2 * time.Hour

// Authority signs certificates.
type Authority struct {
	// File is the authority's certificate, KeyFile its key.
	File, KeyFile string

	cert *x509.Certificate
	key  crypto.Signer
}

// Subject is for whom a certificate is.
type Subject struct {
	// User is the common name. Groups are the organizations.
	User   string
	Groups []string
	// Hosts are the names and IPs of a server. A certificate without any is a client's.
	Hosts []string
	// Lifetime is how long the certificate is valid from now on; zero means 24 hours.
	Lifetime time.Duration
}

// Pair has the files of a certificate and its key.
type Pair struct{ Cert, Key string }

// NewAuthority makes an authority with that common name, and its files NAME.crt and NAME.key in
// dir.
func NewAuthority(dir, name string) (*Authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make the key of %s: %w", name, err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-age), NotAfter: time.Now().Add(lifetime),
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment, IsCA: true,
		BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("make the certificate of %s: %w", name, err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("read the certificate of %s: %w", name, err)
	}
	a := &Authority{
		File: filepath.Join(dir, name+".crt"), KeyFile: filepath.Join(dir, name+".key"), cert: cert, key: key,
	}
	return a, writePair(Pair{Cert: a.File, Key: a.KeyFile}, der, key)
}

// LoadAuthority reads an authority from its files.
func LoadAuthority(file, keyFile string) (*Authority, error) {
	pair, err := tls.LoadX509KeyPair(file, keyFile)
	if err != nil {
		return nil, fmt.Errorf("read the authority %s: %w", file, err)
	}
	key, ok := pair.PrivateKey.(crypto.Signer)
	if !ok {
		return nil, fmt.Errorf("the key of the authority in %s cannot sign", keyFile)
	}
	return &Authority{File: file, KeyFile: keyFile, cert: pair.Leaf, key: key}, nil
}

// Issue makes a key and a certificate that the authority signs, and their files NAME.crt and
// NAME.key in dir.
func (a *Authority) Issue(dir, name string, subject Subject) (Pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Pair{}, fmt.Errorf("make the key of %s: %w", name, err)
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return Pair{}, fmt.Errorf("number the certificate of %s: %w", name, err)
	}
	if subject.Lifetime == 0 {
		subject.Lifetime = lifetime
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: subject.User, Organization: subject.Groups},
		NotBefore: time.Now().Add(-age), NotAfter: time.Now().Add(subject.Lifetime),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	if len(subject.Hosts) > 0 {
		template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	}
	for _, host := range subject.Hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		return Pair{}, fmt.Errorf("sign the certificate of %s: %w", name, err)
	}
	pair := Pair{Cert: filepath.Join(dir, name+".crt"), Key: filepath.Join(dir, name+".key")}
	return pair, writePair(pair, der, key)
}

// writePair writes a certificate and its key as PEM.
func writePair(files Pair, der []byte, key *ecdsa.PrivateKey) error {
	cert := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	if err := os.WriteFile(files.Cert, cert, 0o600); err != nil {
		return fmt.Errorf("write a certificate: %w", err)
	}
	return writeKey(files.Key, key)
}

func writeKey(path string, key *ecdsa.PrivateKey) error {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return fmt.Errorf("encode a key: %w", err)
	}
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}),
		0o600); err != nil {
		return fmt.Errorf("write a key: %w", err)
	}
	return nil
}

// writeKeyPair makes a key, and writes the key and its public half.
func writeKeyPair(files Pair) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fmt.Errorf("make a key: %w", err)
	}
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return fmt.Errorf("encode a public key: %w", err)
	}
	if err := os.WriteFile(files.Cert, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public}),
		0o600); err != nil {
		return fmt.Errorf("write a public key: %w", err)
	}
	return writeKey(files.Key, key)
}
