package auth

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sync/semaphore"
)

const (
	// maxShown bounds the certificates that a caller may show: its own, and those between its own
	// and an authority's. Among many of them, Go looks for a path with up to 100 checks of
	// signatures.
	maxShown = 3
	// maxShownBytes bounds them together. Parsed, they take up to eight times as much memory, for as
	// long as the connection is open.
	maxShownBytes = 32 << 10
	// failedFor is how long certificates are not verified again after they could not be: whoever shows
	// them does so with each request. maxFailed is how many such failures are remembered: more than a
	// listener has connections, each of which shows the same certificates with all of its requests.
	failedFor = 10 * time.Second
	maxFailed = 1024
	// maxReason bounds the text of a remembered failure in bytes.
	maxReason = 200
)

// certificates finds out which user shows a client certificate. Make it with newCertificates.
type certificates struct {
	// authorities returns the authorities that sign client certificates; nil if none are known.
	authorities func() *x509.CertPool
	// verify is [verify], except in tests.
	verify func(shown []*x509.Certificate, roots *x509.CertPool) error
	// verifying has a place for each verification at work: anybody can make them necessary, so that
	// they do not take all CPUs.
	verifying *semaphore.Weighted
	// failed are the certificates that could not be verified, as texts: an error of x509 holds the
	// certificate; see failedFor.
	failed cache[error]
}

func newCertificates(authorities func() *x509.CertPool) certificates {
	return certificates{
		authorities: authorities,
		verify:      verify,
		verifying:   semaphore.NewWeighted(maxVerifying()),
		failed:      cache[error]{most: maxFailed},
	}
}

// maxVerifying is how many verifications may be at work at the same time.
func maxVerifying() int64 { return int64(max(1, runtime.GOMAXPROCS(0)/2)) }

// user checks a client certificate with the current authorities, not with those at the time of the
// connection.
func (c *certificates) user(ctx context.Context, shown []*x509.Certificate) (User, error) {
	roots := c.authorities()
	if roots == nil {
		return User{}, errors.New("verifying the client certificate: no authorities are known")
	}
	if len(shown) > maxShown {
		return User{}, fmt.Errorf("verifying the client certificate: %d certificates were shown, more than %d",
			len(shown), maxShown)
	}
	if err := small(shown); err != nil {
		return User{}, fmt.Errorf("verifying the client certificate: %w", err)
	}
	if err := c.check(ctx, shown, roots); err != nil {
		return User{}, fmt.Errorf("verifying the client certificate of %q: %w", shown[0].Subject.CommonName, err)
	}
	if shown[0].Subject.CommonName == "" {
		return User{}, errors.New("verifying the client certificate: it names no user")
	}
	return userOfCertificate(shown[0]), nil
}

// check verifies certificates, or returns the remembered failure. It waits for a place until ctx
// ends. The verification is over when check returns, so that a caller that leaves at once frees no
// place for another before.
func (c *certificates) check(ctx context.Context, shown []*x509.Certificate, roots *x509.CertPool) error {
	question := []string{fmt.Sprintf("%p", roots)}
	for _, one := range shown {
		question = append(question, string(one.Raw))
	}
	asked := keyOf(question...)
	if failure, ok := c.failed.known(asked); ok {
		return failure
	}
	if err := c.verifying.Acquire(ctx, 1); err != nil {
		return fmt.Errorf("waiting for others to be verified: %w", context.Cause(ctx))
	}
	defer c.verifying.Release(1)
	if failure, ok := c.failed.known(asked); ok { // another request has found it meanwhile
		return failure
	}
	err := c.verify(shown, roots)
	if err != nil {
		err = errors.New(strings.Clone(cut(err.Error(), maxReason)))
		c.failed.remember(asked, err, failedFor)
	}
	return err
}

// small returns an error if certificates are larger than a caller's may be.
func small(shown []*x509.Certificate) error {
	size := 0
	for _, c := range shown {
		size += len(c.Raw)
	}
	if size > maxShownBytes {
		return fmt.Errorf("the shown certificates have %d bytes, more than %d", size, maxShownBytes)
	}
	return nil
}

// cut returns the first bytes of a text, at most that many, as valid UTF-8.
func cut(text string, most int) string {
	if len(text) > most {
		text = text[:most]
	}
	return strings.ToValidUTF8(text, "")
}

// verify checks the first certificate with the others and the authorities.
func verify(shown []*x509.Certificate, roots *x509.CertPool) error {
	intermediates := x509.NewCertPool()
	for _, c := range shown[1:] {
		intermediates.AddCert(c)
	}
	_, err := shown[0].Verify(x509.VerifyOptions{
		Roots:         roots,
		Intermediates: intermediates,
		KeyUsages:     []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	return err
}

// RefuseLarge returns a server's config whose handshakes fail with certificates larger than a
// caller's may be, so that no open connection holds them.
func RefuseLarge(server *tls.Config) *tls.Config {
	bounded := server.Clone()
	before := bounded.VerifyConnection
	bounded.VerifyConnection = func(state tls.ConnectionState) error {
		if err := small(state.PeerCertificates); err != nil {
			return err
		}
		if before != nil {
			return before(state)
		}
		return nil
	}
	if forClient := server.GetConfigForClient; forClient != nil {
		bounded.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			config, err := forClient(hello)
			if config == nil || err != nil {
				return config, err
			}
			return RefuseLarge(config), nil
		}
	}
	return bounded
}
