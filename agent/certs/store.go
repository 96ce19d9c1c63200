package certs

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"time"
)

// The names of a store's files, as a kubelet's: the dated ones, and the link to the one in use.
const (
	// ClientName and ServerName begin the names of the agent's client and serving certificates.
	ClientName = "kubelet-client"
	ServerName = "kubelet-server"

	currentSuffix = "-current.pem"
	stampLayout   = "2006-01-02-15-04-05"
)

// Store keeps one of the agent's certificates with its key: each in a file of its own with the time in its name, and a link NAME-current.pem to the latest.
type Store struct {
	dir, name string
}

// NewStore returns the store of that name in dir, which need not exist.
func NewStore(dir, name string) *Store { return &Store{dir: dir, name: name} }

// Path is the link to the certificate and key in use.
func (s *Store) Path() string { return filepath.Join(s.dir, s.name+currentSuffix) }

// Current returns the certificate in use. The error is fs.ErrNotExist where there is none yet.
func (s *Store) Current() (*tls.Certificate, error) {
	data, err := os.ReadFile(s.Path())
	if err != nil {
		return nil, err
	}
	cert, err := tls.X509KeyPair(data, data)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", s.Path(), err)
	}
	return &cert, nil
}

// damagedSuffix ends the name of a file that was set aside.
const damagedSuffix = ".damaged"

// SetAside takes a file in use that cannot be read out of use, and returns under which name it is kept. It does nothing, and returns no name, where the file is good or
// there is none.
func (s *Store) SetAside() (kept string, err error) {
	if _, err := s.Current(); err == nil || errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	file, err := filepath.EvalSymlinks(s.Path())
	if err != nil {
		return "", fmt.Errorf("setting the damaged %s aside: %w", s.Path(), err)
	}
	kept = file + damagedSuffix
	if err := os.Rename(file, kept); err != nil {
		return "", fmt.Errorf("setting the damaged %s aside: %w", s.Path(), err)
	}
	return kept, nil
}

// Update puts a certificate, with those that signed it after it, and its key in use. Older files of the store whose certificates are over are removed.
func (s *Store) Update(certPEM, keyPEM []byte) error {
	both := append(append(bytes.Clone(certPEM), '\n'), keyPEM...)
	if _, err := tls.X509KeyPair(both, both); err != nil {
		return fmt.Errorf("keeping a certificate of %s: %w", s.name, err)
	}
	if err := os.MkdirAll(s.dir, 0o755); err != nil {
		return fmt.Errorf("making the certificates' directory: %w", err)
	}
	file := filepath.Join(s.dir, s.name+"-"+time.Now().UTC().Format(stampLayout)+".pem")
	if err := replace(file, 0o600, both); err != nil {
		return fmt.Errorf("writing %s: %w", file, err)
	}
	passing := s.Path() + ".new"
	if err := os.Remove(passing); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("putting %s in use: %w", file, err)
	}
	if err := os.Symlink(file, passing); err != nil {
		return fmt.Errorf("putting %s in use: %w", file, err)
	}
	if err := os.Rename(passing, s.Path()); err != nil {
		return fmt.Errorf("putting %s in use: %w", file, err)
	}
	s.sweep(file)
	return nil
}

// sweep removes the dated files, but one, whose certificates are over.
func (s *Store) sweep(keep string) {
	dated := regexp.MustCompile(`^` + regexp.QuoteMeta(s.name) + `-\d{4}(-\d{2}){5}\.pem$`)
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return
	}
	for _, e := range entries {
		path := filepath.Join(s.dir, e.Name())
		if path == keep || !e.Type().IsRegular() || !dated.MatchString(e.Name()) {
			continue
		}
		data, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		if c, err := tls.X509KeyPair(data, data); err == nil && over(c.Leaf, time.Now()) {
			os.Remove(path)
		}
	}
}

// over reports whether a certificate is not valid any more.
func over(c *x509.Certificate, now time.Time) bool { return !now.Before(c.NotAfter) }
