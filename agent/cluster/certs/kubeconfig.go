package certs

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"k8s.io/client-go/rest"
)

// HasPair reports whether a client authenticates with a certificate.
func HasPair(config *rest.Config) bool {
	return (config.CertFile != "" || len(config.CertData) > 0) && (config.KeyFile != "" || len(config.KeyData) > 0)
}

// Valid reports whether a client's certificate can be read and has not expired.
func Valid(config *rest.Config) bool {
	certPEM, keyPEM, err := pairOf(config)
	if err != nil {
		return false
	}
	c, err := tls.X509KeyPair(certPEM, keyPEM)
	return err == nil && !over(c.Leaf, time.Now())
}

// Readable says why a client's certificate or key cannot be read. An expired certificate is
// readable.
func Readable(config *rest.Config) error {
	certPEM, keyPEM, err := pairOf(config)
	if err == nil {
		_, err = tls.X509KeyPair(certPEM, keyPEM)
	}
	switch {
	case err == nil:
		return nil
	case len(config.CertData) > 0:
		return fmt.Errorf("its client certificate cannot be used: %w", err)
	}
	return fmt.Errorf("its client certificate in %s cannot be used: %w", config.CertFile, err)
}

// pairOf returns a client's certificate and key as PEM.
func pairOf(config *rest.Config) (certPEM, keyPEM []byte, err error) {
	certPEM, keyPEM = config.CertData, config.KeyData
	if len(certPEM) == 0 {
		if certPEM, err = os.ReadFile(config.CertFile); err != nil {
			return nil, nil, err
		}
	}
	if len(keyPEM) == 0 {
		if keyPEM, err = os.ReadFile(config.KeyFile); err != nil {
			return nil, nil, err
		}
	}
	return certPEM, keyPEM, nil
}

// UseStore makes a client use the current certificate of a store from now on. If the store has
// none, or an expired one, UseStore puts the client's own certificate into it first.
func UseStore(config *rest.Config, s *Store) error {
	current, err := s.Current()
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if (err != nil || over(current.Leaf, time.Now())) && config.CertFile != s.Path() {
		certPEM, keyPEM, err := pairOf(config)
		if err != nil {
			return fmt.Errorf("reading the kubeconfig's certificate: %w", err)
		}
		if err := s.Update(certPEM, keyPEM); err != nil {
			return err
		}
	}
	config.CertFile, config.KeyFile, config.CertData, config.KeyData = s.Path(), s.Path(), nil, nil
	return nil
}

// Placeholder puts an expired certificate without a signer into a store. Clients read their files
// before they need them, so the files must exist.
func Placeholder(s *Store, node string) error {
	certPEM, keyPEM, err := generate([]string{node}, time.Now().Add(-2*selfSignedLife))
	if err != nil {
		return fmt.Errorf("making a placeholder: %w", err)
	}
	return s.Update(certPEM, keyPEM)
}
