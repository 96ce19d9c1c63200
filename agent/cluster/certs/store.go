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

	"github.com/berthd/berth/internal/atomicfile"
)

// These are the names of a store's files, as in the kubelet: the dated files, and the link to the
// current one.
const (
	// ClientName and ServerName are the prefixes of the files with the agent's client and serving
	// certificates.
	ClientName = "kubelet-client"
	ServerName = "kubelet-server"

	currentSuffix = "-current.pem"
	stampLayout   = "2006-01-02-15-04-05"
)

// Store keeps one of the agent's certificates with its key. Each certificate has its own file with
// the time in its name, and the link NAME-current.pem leads to the latest.
type Store struct {
	dir, name string
}

// NewStore returns the store of that name in dir. dir need not exist.
func NewStore(dir, name string) *Store { return &Store{dir: dir, name: name} }

// Path is the link to the current certificate and key.
func (s *Store) Path() string { return filepath.Join(s.dir, s.name+currentSuffix) }

// Current returns the current certificate. The error is fs.ErrNotExist while there is none.
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

// damagedSuffix is appended to the name of a file that was set aside.
const damagedSuffix = ".damaged"

// SetAside renames the current file if it cannot be read, and returns the new name. If the file is
// good or does not exist, it does nothing and returns no name.
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

// Update makes a certificate, followed by its signers, and its key the current ones. It removes
// older files of the store whose certificates have expired.
func (s *Store) Update(certPEM, keyPEM []byte) error {
	both := append(append(bytes.Clone(certPEM), '\n'), keyPEM...)
	if _, err := tls.X509KeyPair(both, both); err != nil {
		return fmt.Errorf("keeping a certificate of %s: %w", s.name, err)
	}
	if err := os.MkdirAll(s.dir, 0o755); err != nil {
		return fmt.Errorf("making the certificates' directory: %w", err)
	}
	file := filepath.Join(s.dir, s.name+"-"+time.Now().UTC().Format(stampLayout)+".pem")
	if err := atomicfile.Write(file, both, 0o600, atomicfile.OverPowerLoss); err != nil {
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

// sweep removes the dated files, except keep, whose certificates have expired.
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

// over reports whether a certificate has expired.
func over(c *x509.Certificate, now time.Time) bool { return !now.Before(c.NotAfter) }
