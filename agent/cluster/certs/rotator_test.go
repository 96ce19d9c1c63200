package certs

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
)

// signer is a cluster that signs certificates as a test wants.
type signer struct {
	// what the rotators reported: failures, replaced certificates, and the sum of their ages
	failed, rotated, ages atomic.Int64

	t    *testing.T
	key  *ecdsa.PrivateKey
	cert *x509.Certificate

	mu      sync.Mutex
	life    time.Duration
	hold    bool  // does not decide requests
	deny    bool  // denies the next one
	down    error // the answer to every request
	noWatch bool  // ends every watch at once
	objects map[string]*certificatesv1.CertificateSigningRequest
	watches map[chan watch.Event]string
	asked   []string // the requests' names
}

func newSigner(t *testing.T, life time.Duration) *signer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	ca := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: "ca"},
		NotAfter:              time.Now().Add(1e6 * time.Hour),
		IsCA:                  true,
		BasicConstraintsValid: true,
	}
	return &signer{
		t:       t,
		key:     key,
		cert:    ca,
		life:    life,
		objects: map[string]*certificatesv1.CertificateSigningRequest{},
		watches: map[chan watch.Event]string{},
	}
}

func (s *signer) Create(
	_ context.Context, csr *certificatesv1.CertificateSigningRequest,
) (*certificatesv1.CertificateSigningRequest, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.down != nil {
		return nil, s.down
	}
	if _, ok := s.objects[csr.Name]; ok {
		return nil, apierrors.NewAlreadyExists(schema.GroupResource{Resource: "certificatesigningrequests"}, csr.Name)
	}
	s.asked = append(s.asked, csr.Name)
	s.objects[csr.Name] = csr.DeepCopy()
	out := csr.DeepCopy()
	s.decide()
	return out, nil
}

func (s *signer) Get(_ context.Context, _, name string) (*certificatesv1.CertificateSigningRequest, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	csr, ok := s.objects[name]
	if !ok {
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "certificatesigningrequests"}, name)
	}
	return csr.DeepCopy(), s.down
}

func (s *signer) Watch(_ context.Context, _ string, opts metav1.ListOptions) (watch.Interface, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	name, _ := strings.CutPrefix(opts.FieldSelector, "metadata.name=")
	ch := make(chan watch.Event, 10)
	if s.noWatch {
		close(ch)
	} else {
		ch <- watch.Event{Type: watch.Added, Object: s.objects[name].DeepCopy()}
		s.watches[ch] = name
	}
	return watch.NewProxyWatcher(ch), nil
}

// release decides the requests that were left alone.
func (s *signer) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hold = false
	s.decide()
}

// decide signs, or denies, every pending request.
func (s *signer) decide() {
	if s.hold {
		return
	}
	for name, csr := range s.objects {
		if len(csr.Status.Conditions) > 0 {
			continue
		}
		kind := certificatesv1.CertificateApproved
		if s.deny {
			s.deny, kind = false, certificatesv1.CertificateDenied
		} else {
			csr.Status.Certificate = s.sign(csr)
		}
		csr.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{
			Type:   kind,
			Status: corev1.ConditionTrue,
			Reason: "Test",
		}}
		for ch, of := range s.watches {
			if of == name {
				ch <- watch.Event{Type: watch.Modified, Object: csr.DeepCopy()}
			}
		}
	}
}

func (s *signer) sign(csr *certificatesv1.CertificateSigningRequest) []byte {
	block, _ := pem.Decode(csr.Spec.Request)
	req, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		s.t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()),
		Subject:      req.Subject,
		DNSNames:     req.DNSNames,
		IPAddresses:  req.IPAddresses,
		NotBefore:    time.Now(),
		NotAfter:     time.Now().Add(s.life),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, s.cert, req.PublicKey, s.key)
	if err != nil {
		s.t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

func (s *signer) requests() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.asked)
}

// rotating runs a rotator until the returned function is called.
func rotating(t *testing.T, cfg RotatorConfig, s *signer) (r *Rotator, changes func() int, stop func()) {
	t.Helper()
	var mu sync.Mutex
	n := 0
	if cfg.Wanted == nil {
		cfg.Wanted = func() Wanted { return ClientOf("node") }
	}
	r, err := NewRotator(cfg, RotatorDeps{
		Requests: func(bool) (Requests, error) { return s, nil },
		Changed: func(context.Context) {
			mu.Lock()
			n++
			mu.Unlock()
		},
		Failed:  func() { s.failed.Add(1) },
		Rotated: func(age time.Duration) { s.ages.Add(int64(age)); s.rotated.Add(1) },
		Logger:  logger(t),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	return r, func() int {
			mu.Lock()
			defer mu.Unlock()
			return n
		}, func() {
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
}

// TestRotation runs a year of a client's certificate: the first one, each next one in its window,
// and no other request.
func TestRotation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSigner(t, 10*time.Hour)
		dir := t.TempDir()
		store := NewStore(dir, ClientName)
		r, changes, stop := rotating(t, RotatorConfig{Store: store}, s)
		<-r.Ready()
		if c := r.leaf(); c.Subject.CommonName != "system:node:node" || len(c.Subject.Organization) != 1 ||
			c.Subject.Organization[0] != "system:nodes" {
			t.Errorf("it is %s's", c.Subject)
		}
		for i := 1; i <= 20; i++ {
			first := r.leaf()
			time.Sleep(time.Until(first.NotBefore.Add(7*time.Hour)) - time.Minute)
			synctest.Wait()
			if !r.leaf().Equal(first) {
				t.Fatalf("renewal %d came before 70 %%", i)
			}
			time.Sleep(time.Until(first.NotBefore.Add(9*time.Hour)) + time.Minute)
			synctest.Wait()
			if r.leaf().Equal(first) {
				t.Fatalf("renewal %d has not come at 90 %%", i)
			}
		}
		stop()
		if s.requests() != 21 || changes() != 21 {
			t.Errorf("%d requests, %d changes, want 21", s.requests(), changes())
		}
		if n, age := s.rotated.Load(), time.Duration(s.ages.Load()); n != 20 || age < time.Duration(n)*7*time.Hour ||
			age > time.Duration(n)*9*time.Hour+time.Duration(n)*time.Minute || s.failed.Load() != 0 {
			t.Errorf("told of %d replaced ones of %s together, and %d failures", n, age, s.failed.Load())
		}
		if c, err := store.Current(); err != nil || !c.Leaf.Equal(r.leaf()) {
			t.Errorf("on disk: %v", err)
		}
		// Expired certificates do not accumulate.
		if files, _ := filepath.Glob(filepath.Join(dir, "*")); len(files) > 4 {
			t.Errorf("left: %q", files)
		}
		target, err := os.Readlink(store.Path())
		if err != nil || !strings.HasPrefix(filepath.Base(target), "kubelet-client-20") {
			t.Errorf("%s leads to %q (%v)", store.Path(), target, err)
		}
	})
}

// TestRestartKeepsTheCertificate checks that a restart requests nothing while the certificate is
// good, and continues a pending request.
func TestRestartKeepsTheCertificate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSigner(t, time.Hour)
		s.hold = true
		dir := t.TempDir()
		cfg := RotatorConfig{Store: NewStore(dir, ClientName), PendingKey: filepath.Join(dir, "kubelet-client.key.tmp")}
		r, _, stop := rotating(t, cfg, s)
		synctest.Wait()
		if _, err := r.Certificate(); err == nil {
			t.Error("a certificate before there is one")
		}
		stop()
		_, _, stop = rotating(t, cfg, s)
		synctest.Wait()
		stop()
		if s.requests() != 1 {
			t.Errorf("%d requests, want 1: the second run knows the first one's", s.requests())
		}
		r, _, stop = rotating(t, cfg, s)
		synctest.Wait()
		s.release()
		<-r.Ready()
		stop()
		if _, err := os.Stat(cfg.PendingKey); err == nil {
			t.Error("the key that was asked for is left")
		}
		r, _, stop = rotating(t, cfg, s)
		<-r.Ready()
		time.Sleep(30 * time.Minute)
		stop()
		if s.requests() != 1 {
			t.Errorf("%d requests", s.requests())
		}
	})
}

func TestRotationInTrouble(t *testing.T) {
	for name, tc := range map[string]struct {
		before func(s *signer)
		after  func(s *signer)
		within time.Duration
		asked  int
	}{
		"the API server is down": {
			func(s *signer) { s.down = errors.New("down") }, func(s *signer) { s.down = nil }, 5 * time.Minute, 1,
		},
		"the first request is denied": {func(s *signer) { s.deny = true }, func(*signer) {}, time.Minute, 2},
		"watches end at once": {func(s *signer) { s.hold, s.noWatch = true, true }, func(s *signer) {
			s.hold = false
			s.decide()
		}, time.Minute, 0},
		"nobody approves for an hour": {func(s *signer) { s.hold = true }, func(s *signer) {
			s.hold = false
			s.decide()
		}, 5 * time.Minute, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSigner(t, 100*time.Hour)
				tc.before(s)
				r, _, stop := rotating(t, RotatorConfig{Store: NewStore(t.TempDir(), ClientName)}, s)
				defer stop()
				time.Sleep(time.Hour)
				s.mu.Lock()
				tc.after(s)
				s.mu.Unlock()
				began := time.Now()
				<-r.Ready()
				if took := time.Since(began); took > tc.within {
					t.Errorf("%v after the trouble was over, want at most %v", took, tc.within)
				}
				if s.failed.Load() == 0 || s.rotated.Load() != 0 || !r.Ends().After(time.Now()) {
					t.Errorf("told of %d failures and %d replaced ones; it ends at %s", s.failed.Load(),
						s.rotated.Load(), r.Ends())
				}
				if tc.asked > 0 && s.requests() != tc.asked {
					t.Errorf("%d requests, want %d", s.requests(), tc.asked)
				}
			})
		})
	}
}

// TestServingFollowsTheAddresses checks that a node with other addresses gets another certificate.
func TestServingFollowsTheAddresses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSigner(t, 1000*time.Hour)
		var mu sync.Mutex
		ips := []string{"192.0.2.1"}
		r, _, stop := rotating(t, RotatorConfig{Store: NewStore(t.TempDir(), ServerName), Wanted: func() Wanted {
			mu.Lock()
			defer mu.Unlock()
			return ServerOf("node", []string{"node"}, ips)
		}}, s)
		defer stop()
		<-r.Ready()
		if err := r.leaf().VerifyHostname("192.0.2.1"); err != nil {
			t.Error(err)
		}
		mu.Lock()
		ips = []string{"192.0.2.1", "192.0.2.2"}
		mu.Unlock()
		time.Sleep(2 * longestSleep)
		synctest.Wait()
		if err := r.leaf().VerifyHostname("192.0.2.2"); err != nil {
			t.Error(err)
		}
		if s.requests() != 2 {
			t.Errorf("%d requests", s.requests())
		}
	})
}

// TestOnce checks that the first certificate is not renewed.
func TestOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSigner(t, time.Hour)
		r, _, stop := rotating(t, RotatorConfig{Store: NewStore(t.TempDir(), ClientName), Once: true}, s)
		defer stop()
		<-r.Ready()
		time.Sleep(58 * time.Minute)
		if s.requests() != 1 {
			t.Errorf("%d requests", s.requests())
		}
	})
}

func TestDeadline(t *testing.T) {
	begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	c := &x509.Certificate{NotBefore: begin, NotAfter: begin.Add(100 * time.Hour)}
	for fraction, want := range map[float64]time.Duration{0: 70 * time.Hour, 0.5: 80 * time.Hour, 1: 90 * time.Hour} {
		if got := deadline(c, fraction).Sub(begin); got.Round(time.Second) != want {
			t.Errorf("%v: after %v, want %v", fraction, got, want)
		}
	}
}

func TestStoreRefusesWhatIsNoPair(t *testing.T) {
	dir := t.TempDir()
	s := NewStore(dir, ClientName)
	cert, _, err := generate([]string{"a"}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	_, key, err := generate([]string{"b"}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Update(cert, key); err == nil {
		t.Error("another's certificate was put in use")
	}
	if files, _ := filepath.Glob(filepath.Join(dir, "*")); len(files) > 0 {
		t.Errorf("left: %q", files)
	}
}
