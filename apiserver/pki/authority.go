package pki

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"math/big"
	"net"
	"path/filepath"
	"slices"
	"syscall"
	"time"
)

const (
	// authorityLifetime is how long an authority is valid: as long as one that kubeadm makes.
	authorityLifetime = 10 * 365 * 24 * time.Hour
	// leafLifetime is how long a certificate is valid that the server can replace while it runs.
	leafLifetime = 365 * 24 * time.Hour
	// backdated is how long before now a certificate begins, for clients whose clock is behind.
	backdated = time.Hour
)

// authority signs certificates.
type authority struct {
	cert *x509.Certificate
	key  crypto.Signer
}

// ensureAuthority reads an authority, or makes it if there is no certificate of it yet. The key is
// written first: a certificate without its key is thus the work of a person.
func ensureAuthority(dir, name string, now time.Time) (*authority, error) {
	certFile, keyFile := filepath.Join(dir, name+".crt"), filepath.Join(dir, name+".key")
	found, err := exists(certFile)
	if err != nil {
		return nil, fmt.Errorf("look for the authority: %w", err)
	}
	if !found {
		if lost, err := exists(filepath.Join(dir, "service-accounts.key")); err != nil || lost { // the last one made
			return nil, errors.Join(err, fmt.Errorf("the authority %s is missing beside other keys: restore both of its files, "+
				"or remove %s to begin with a new one, which makes all kubeconfigs and nodes invalid", certFile, dir))
		}
		if err := makeAuthority(certFile, keyFile, name, now); err != nil {
			return nil, err
		}
	}
	cert, key, err := readPair(certFile, keyFile)
	if err != nil {
		return nil, fmt.Errorf("read the authority %s (restore both of its files, or remove %s to begin with a new one, "+
			"which makes all kubeconfigs and nodes invalid): %w", certFile, dir, err)
	}
	if now.After(cert.NotAfter) {
		return nil, fmt.Errorf("the authority %s ended on %s: remove %s to begin with a new one, and give nodes and "+
			"users new kubeconfigs", certFile, cert.NotAfter.Format(time.DateOnly), dir)
	}
	return &authority{cert: cert, key: key}, nil
}

func makeAuthority(certFile, keyFile, name string, now time.Time) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fmt.Errorf("make the key of %s: %w", name, err)
	}
	serial, err := serialNumber()
	if err != nil {
		return err
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: "berth-" + name},
		NotBefore: now.Add(-backdated), NotAfter: now.Add(authorityLifetime),
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return fmt.Errorf("make the certificate of %s: %w", name, err)
	}
	text, err := encodeKey(key)
	if err != nil {
		return err
	}
	if err := writeFile(keyFile, text); err != nil {
		return err
	}
	return writeFile(certFile, encodeCertificate(der))
}

// leaf is what a certificate says.
type leaf struct {
	name   string // of its file, without .pem
	user   string
	groups []string
	// hosts are the names and addresses of a server. A certificate without any is a client's.
	hosts []string
	// fixed says that its user reads the certificate only once, at the start: it lasts as long as
	// its authority.
	fixed bool
}

// ensureLeaf makes a certificate and its key unless the file has one that fits and does not end
// soon. It returns the file's path, and whether the file is new. On a full disk an old one that
// still holds stays: a later call tries again.
func (a *authority) ensureLeaf(dir string, want leaf, now time.Time) (path string, made bool, err error) {
	path = filepath.Join(dir, want.name+".pem")
	old, _, missing := readPair(path, path)
	if missing == nil && a.fits(old, want, now) {
		return path, false, nil
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return "", false, fmt.Errorf("make the key of %s: %w", want.name, err)
	}
	serial, err := serialNumber()
	if err != nil {
		return "", false, err
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: want.user, Organization: want.groups},
		NotBefore: now.Add(-backdated), NotAfter: a.end(want, now), KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{want.usage()},
	}
	for _, host := range want.hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		return "", false, fmt.Errorf("sign the certificate of %s: %w", want.name, err)
	}
	text, err := encodeKey(key)
	if err != nil {
		return "", false, err
	}
	err = writeFile(path, append(encodeCertificate(der), text...))
	if errors.Is(err, syscall.ENOSPC) && missing == nil && now.Before(old.NotAfter) &&
		old.CheckSignatureFrom(a.cert) == nil {
		return path, false, nil
	}
	return path, true, err
}

func (l leaf) usage() x509.ExtKeyUsage {
	if len(l.hosts) > 0 {
		return x509.ExtKeyUsageServerAuth
	}
	return x509.ExtKeyUsageClientAuth
}

// end returns when a certificate made now ends. None outlives its authority.
func (a *authority) end(l leaf, now time.Time) time.Time {
	if end := now.Add(leafLifetime); !l.fixed && end.Before(a.cert.NotAfter) {
		return end
	}
	return a.cert.NotAfter
}

// fits says whether a certificate is this authority's, says what it should, and has more than a
// third of its life before it. Nothing helps against the end of the authority itself.
func (a *authority) fits(cert *x509.Certificate, want leaf, now time.Time) bool {
	if cert.CheckSignatureFrom(a.cert) != nil || cert.Subject.CommonName != want.user ||
		!slices.Equal(cert.Subject.Organization, want.groups) ||
		!slices.Equal(cert.ExtKeyUsage, []x509.ExtKeyUsage{want.usage()}) {
		return false
	}
	hosts := slices.Clone(cert.DNSNames)
	for _, ip := range cert.IPAddresses {
		hosts = append(hosts, ip.String())
	}
	for _, host := range want.hosts {
		if !slices.Contains(hosts, host) {
			return false
		}
	}
	left, life := cert.NotAfter.Sub(now), cert.NotAfter.Sub(cert.NotBefore)
	return left > life/3 || (left > 0 && cert.NotAfter.Equal(a.cert.NotAfter))
}

// serialNumber returns a random number of 127 bits (RFC 5280, 4.1.2.2 allows 159).
func serialNumber() (*big.Int, error) {
	n, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, fmt.Errorf("number a certificate: %w", err)
	}
	return n, nil
}
