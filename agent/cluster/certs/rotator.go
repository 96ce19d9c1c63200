package certs

import (
	"context"
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"os"
	"sync"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/berthd/berth/internal/atomicfile"
	"github.com/berthd/berth/internal/retry"
)

const (
	// issueTimeout is how long to wait for one request before another is made, as in the kubelet.
	issueTimeout = 15 * time.Minute
	// restAfter is the shortest time to keep a certificate, even one that was nearly expired when
	// it was signed.
	restAfter = 10 * time.Second
	// longestSleep limits one sleep, because the wanted certificate, the clock and the file may
	// change in that time.
	longestSleep = time.Minute
)

// backoff is how long to wait after a request that failed.
var backoff = retry.Backoff{First: 2 * time.Second, Most: 4 * time.Minute}

// Requests are the cluster's certificate requests, whose namespace is empty. A kube.Client of them
// is one.
type Requests interface {
	Create(ctx context.Context,
		csr *certificatesv1.CertificateSigningRequest) (*certificatesv1.CertificateSigningRequest, error)
	Get(ctx context.Context, namespace, name string) (*certificatesv1.CertificateSigningRequest, error)
	Watch(ctx context.Context, namespace string, opts metav1.ListOptions) (watch.Interface, error)
}

// RotatorConfig is the configuration of a rotator.
type RotatorConfig struct {
	Store *Store
	// Wanted returns the wanted certificate, which may change. It is called only when a certificate
	// is requested or checked.
	Wanted func() Wanted
	// Once keeps the rotator from renewing its certificate.
	Once bool
	// PendingKey is the file with the key of the pending request. With it, a restarted agent
	// continues the same request. Empty for none.
	PendingKey string
}

// RotatorDeps are the dependencies of a rotator.
type RotatorDeps struct {
	// Requests returns a client for requests. valid says whether the current certificate can
	// authenticate it.
	Requests func(valid bool) (Requests, error)
	// Changed is called after the certificate has changed. ctx is that of [Rotator.Run].
	Changed func(ctx context.Context)
	// Failed, if set, is called after each failed request. Rotated, if set, is called after a
	// certificate has replaced another, with the age of the replaced one.
	Failed  func()
	Rotated func(age time.Duration)
	Logger  *slog.Logger
}

// Rotator keeps a certificate that the cluster signs: it requests the first one, and each next one
// before the current one expires. Make it with [NewRotator].
type Rotator struct {
	cfg  RotatorConfig
	deps RotatorDeps
	log  *slog.Logger
	// fraction says when in its window a certificate is renewed; each certificate has another one.
	fraction float64

	mu      sync.Mutex
	current *tls.Certificate
	ready   chan struct{} // closed once there is a valid certificate
}

// NewRotator returns a rotator with its store's certificate. It requests nothing before
// [Rotator.Run].
func NewRotator(cfg RotatorConfig, deps RotatorDeps) (*Rotator, error) {
	r := &Rotator{cfg: cfg, deps: deps, log: deps.Logger, fraction: rand.Float64(), ready: make(chan struct{})}
	c, err := cfg.Store.Current()
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		r.log.Warn("the certificate that there is cannot be used; another is asked for", "file", cfg.Store.Path(),
			"err", err)
	}
	if err == nil {
		r.use(c)
	}
	return r, nil
}

// Ready is closed once there is a valid certificate.
func (r *Rotator) Ready() <-chan struct{} { return r.ready }

// Certificate returns the current certificate, or an error while there is none.
func (r *Rotator) Certificate() (*tls.Certificate, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.current == nil {
		return nil, errors.New("no certificate has been issued yet: see kubectl get csr")
	}
	return r.current, nil
}

func (r *Rotator) use(c *tls.Certificate) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.current = c
	if over(c.Leaf, time.Now()) {
		return
	}
	select {
	case <-r.ready:
	default:
		close(r.ready)
	}
}

// leaf returns the current certificate, nil if there is none.
func (r *Rotator) leaf() *x509.Certificate {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.current == nil {
		return nil
	}
	return r.current.Leaf
}

// Ends returns when the current certificate expires, the zero time while there is none.
func (r *Rotator) Ends() time.Time {
	if c := r.leaf(); c != nil {
		return c.NotAfter
	}
	return time.Time{}
}

// Run requests certificates until ctx ends. Each turn works from the current state: the
// certificate, the time, and the wanted certificate.
func (r *Rotator) Run(ctx context.Context) error {
	failures := 0
	for ctx.Err() == nil {
		wait, why := r.due(time.Now())
		if why == "" {
			if !retry.Sleep(ctx, wait) {
				break
			}
			continue
		}
		r.log.Info("asking the cluster for a certificate", "file", r.cfg.Store.Path(), "why", why)
		err := r.renew(ctx)
		if err == nil {
			failures = 0
			if !retry.Sleep(ctx, restAfter) {
				break
			}
			continue
		}
		failures++
		if ctx.Err() == nil {
			r.log.Warn("no certificate; it is tried again", "file", r.cfg.Store.Path(), "err", err,
				"in", backoff.Delay(failures))
			if r.deps.Failed != nil {
				r.deps.Failed()
			}
		}
		backoff.Wait(ctx, failures)
	}
	return nil
}

// due says why to request a certificate now. If there is no reason, it returns how long to wait
// before the next check.
func (r *Rotator) due(now time.Time) (wait time.Duration, why string) {
	c := r.leaf()
	switch {
	case c == nil:
		return 0, "there is none"
	case over(c, now):
		return 0, "it is over"
	case r.cfg.Once:
		return longestSleep, ""
	case !r.cfg.Wanted().covers(c):
		return 0, "the node's name or addresses have changed"
	}
	if left := deadline(c, r.fraction).Sub(now); left > 0 {
		return min(left, longestSleep), ""
	}
	return 0, "it is nearly over"
}

// renew gets a certificate and starts to use it.
func (r *Rotator) renew(ctx context.Context) error {
	c := r.leaf()
	requests, err := r.deps.Requests(c != nil && !over(c, time.Now()))
	if err != nil {
		return err
	}
	req, err := r.request()
	if err != nil {
		return err
	}
	certPEM, err := issue(ctx, requests, req.object)
	if errors.Is(err, errDenied) || errors.Is(err, errFailed) {
		r.forgetKey() // the next request must be another one
	}
	if err != nil {
		return err
	}
	keyPEM, err := encodeKey(req.key)
	if err != nil {
		return err
	}
	if err := r.cfg.Store.Update(certPEM, keyPEM); err != nil {
		r.forgetKey()
		return err
	}
	r.forgetKey()
	cert, err := r.cfg.Store.Current()
	if err != nil {
		return err
	}
	r.fraction = rand.Float64()
	r.use(cert)
	r.log.Info("certificate issued", "file", r.cfg.Store.Path(), "ends", cert.Leaf.NotAfter)
	if c != nil && r.deps.Rotated != nil {
		r.deps.Rotated(time.Since(c.NotBefore))
	}
	if r.deps.Changed != nil {
		r.deps.Changed(ctx)
	}
	return nil
}

// request returns the request to make: with the key of an earlier agent's pending request, or with
// a new key.
func (r *Rotator) request() (*request, error) {
	w := r.cfg.Wanted()
	if r.cfg.PendingKey == "" {
		return newRequest(w)
	}
	if data, err := os.ReadFile(r.cfg.PendingKey); err == nil {
		if block, _ := pem.Decode(data); block != nil {
			if key, err := x509.ParseECPrivateKey(block.Bytes); err == nil {
				return requestFor(w, key)
			}
		}
	}
	req, err := newRequest(w)
	if err != nil {
		return nil, err
	}
	keyPEM, err := encodeKey(req.key)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(r.cfg.Store.dir, 0o755); err != nil {
		return nil, fmt.Errorf("making the certificates' directory: %w", err)
	}
	if err := atomicfile.Write(r.cfg.PendingKey, keyPEM, 0o600, atomicfile.OverPowerLoss); err != nil {
		return nil, fmt.Errorf("keeping the key that is asked for: %w", err)
	}
	return req, nil
}

func (r *Rotator) forgetKey() {
	if r.cfg.PendingKey != "" {
		os.Remove(r.cfg.PendingKey)
	}
}

func encodeKey(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encoding a key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), nil
}

// issue makes a request, which may exist already, and waits for the certificate.
func issue(ctx context.Context, requests Requests, object *certificatesv1.CertificateSigningRequest) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, issueTimeout)
	defer cancel()
	csr, err := requests.Create(ctx, object)
	if apierrors.IsAlreadyExists(err) {
		csr, err = requests.Get(ctx, "", object.Name)
	}
	if err != nil {
		return nil, err
	}
	for {
		if cert, err := issued(csr); cert != nil || err != nil {
			return cert, wrap(err, object.Name)
		}
		cert, err := follow(ctx, requests, object.Name)
		if cert != nil || err != nil {
			return cert, wrap(err, object.Name)
		}
		// The watch ended, as every watch does after some time.
		if !retry.Sleep(ctx, time.Second) {
			return nil, fmt.Errorf(
				"waiting for the certificate request %s to be approved (kubectl certificate approve %s): %w",
				object.Name, object.Name, context.Cause(ctx))
		}
		if csr, err = requests.Get(ctx, "", object.Name); err != nil {
			return nil, err
		}
	}
}

func wrap(err error, name string) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("certificate request %s: %w", name, err)
}

// follow watches a request until it is decided or the watch ends.
func follow(ctx context.Context, requests Requests, name string) ([]byte, error) {
	w, err := requests.Watch(ctx, "", metav1.ListOptions{FieldSelector: "metadata.name=" + name})
	if err != nil {
		return nil, nil // the next request reports the error
	}
	defer w.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil, nil
		case e, ok := <-w.ResultChan():
			if !ok || e.Type == watch.Error {
				return nil, nil
			}
			csr, is := e.Object.(*certificatesv1.CertificateSigningRequest)
			if !is {
				continue
			}
			if e.Type == watch.Deleted {
				return nil, errors.New("it was deleted")
			}
			if cert, err := issued(csr); cert != nil || err != nil {
				return cert, err
			}
		}
	}
}
