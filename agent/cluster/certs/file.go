package certs

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"
)

// lookInterval is the shortest time between two checks of the files.
const lookInterval = time.Second

// reloaded is a value that is read from files, and read again when they have changed.
type reloaded[V any] struct {
	what  string
	files []string
	read  func() (V, error)
	log   *slog.Logger

	mu     sync.Mutex
	value  V
	looked time.Time
	seen   []stamp
	failed string
}

// stamp identifies a version of a file.
type stamp struct {
	info fs.FileInfo
}

func stampsOf(files []string) []stamp {
	out := make([]stamp, len(files))
	for i, f := range files {
		out[i].info, _ = os.Stat(f) // nil for a file that does not exist
	}
	return out
}

// same reports whether two stamps are of the same version.
func (s stamp) same(other stamp) bool {
	if s.info == nil || other.info == nil {
		return s.info == nil && other.info == nil
	}
	return os.SameFile(s.info, other.info) && s.info.ModTime().Equal(other.info.ModTime()) &&
		s.info.Size() == other.info.Size()
}

// load reads the files for the first time. Here a failure is an error.
func (r *reloaded[V]) load() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.looked, r.seen = time.Now(), stampsOf(r.files)
	v, err := r.read()
	if err != nil {
		return fmt.Errorf("reading %s: %w", r.what, err)
	}
	r.value = v
	return nil
}

// get returns the value of the files. If they cannot be read now, it returns the last good value.
func (r *reloaded[V]) get() V {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	if now.Sub(r.looked) < lookInterval {
		return r.value
	}
	r.looked = now
	seen := stampsOf(r.files)
	if r.failed == "" && slices.EqualFunc(seen, r.seen, stamp.same) {
		return r.value
	}
	r.seen = seen
	v, err := r.read()
	if err != nil {
		if text := err.Error(); text != r.failed {
			r.failed = text
			r.log.Error("files changed and cannot be used; the last good ones stay", "what", r.what, "files", r.files,
				"err", err)
		}
		return r.value
	}
	r.failed, r.value = "", v
	r.log.Info("files read again", "what", r.what, "files", r.files)
	return v
}

// Pair is a certificate and its key in files. Make it with [NewPair].
type Pair struct {
	reloaded[*tls.Certificate]
}

// NewPair reads a certificate, followed by its signers, and its key from PEM files. Both may be one
// file.
func NewPair(certFile, keyFile string, log *slog.Logger) (*Pair, error) {
	p := &Pair{reloaded[*tls.Certificate]{
		what: "certificate and key", files: []string{certFile, keyFile}, log: log,
		read: func() (*tls.Certificate, error) {
			c, err := tls.LoadX509KeyPair(certFile, keyFile)
			return &c, err
		},
	}}
	if err := p.load(); err != nil {
		return nil, err
	}
	return p, nil
}

// Certificate returns the current certificate.
func (p *Pair) Certificate() (*tls.Certificate, error) { return p.get(), nil }

// Bundle is a file with certificates of authorities. Make it with [NewBundle].
type Bundle struct {
	reloaded[*x509.CertPool]
}

// NewBundle reads authorities from a PEM file.
func NewBundle(file string, log *slog.Logger) (*Bundle, error) {
	b := &Bundle{reloaded[*x509.CertPool]{
		what: "certificate authorities", files: []string{file}, log: log,
		read: func() (*x509.CertPool, error) {
			data, err := os.ReadFile(file)
			if err != nil {
				return nil, err
			}
			pool := x509.NewCertPool()
			if !pool.AppendCertsFromPEM(data) {
				return nil, errors.New(file + " has no certificate")
			}
			return pool, nil
		},
	}}
	if err := b.load(); err != nil {
		return nil, err
	}
	return b, nil
}

// Pool returns the current authorities. The pool must not be modified.
func (b *Bundle) Pool() *x509.CertPool { return b.get() }
