package server

import (
	"fmt"
	"log/slog"

	"github.com/berthd/berth/agent/cluster/certs"
	"github.com/berthd/berth/agent/cluster/kube"
	"github.com/berthd/berth/agent/server/auth"
	"github.com/berthd/berth/configs"
)

// SecureDeps are what the certificate and the guard of the API's port are made from.
type SecureDeps struct {
	// Node is the node's name.
	Node string
	// Serving is the certificate that the cluster signs for the node; nil if there is none.
	Serving certs.Serving
	// Reviewer is the connection to the API server that says what callers may do; nil if there is
	// none.
	Reviewer *kube.Conn
	Logger   *slog.Logger
}

// Secure adds to d what the API's port needs: a certificate, and the guard, which identifies
// callers and asks what they may do.
func (d *Deps) Secure(cfg *configs.Config, by SecureDeps) error {
	k := &cfg.Kubelet
	limits, err := certs.LimitsOf(k.TLSMinVersion, k.TLSCipherSuites, k.TLSCurvePreferences)
	if err != nil {
		return err
	}
	cert, err := servingCertificate(cfg, by)
	if err != nil {
		return err
	}
	guard := auth.Deps{Logger: by.Logger}
	if file := k.Authentication.X509.ClientCAFile; file != "" {
		bundle, err := certs.NewBundle(file, by.Logger)
		if err != nil {
			return err
		}
		guard.Authorities = bundle.Pool
	}
	if by.Reviewer != nil {
		if guard.Reviews, err = auth.NewReviews(by.Reviewer); err != nil {
			return fmt.Errorf("preparing to ask the API server about callers: %w", err)
		}
	}
	d.TLS = certs.ServerConfig(cert, guard.Authorities, limits)
	d.Guard = auth.New(auth.Config{
		Node:       by.Node,
		Anonymous:  *k.Authentication.Anonymous.Enabled,
		Tokens:     *k.Authentication.Webhook.Enabled,
		TokenTTL:   k.Authentication.Webhook.CacheTTL.Duration,
		AllowAll:   cfg.AllowsAll(),
		AllowedTTL: k.Authorization.Webhook.CacheAuthorizedTTL.Duration,
		RefusedTTL: k.Authorization.Webhook.CacheUnauthorizedTTL.Duration,
	}, guard)
	return nil
}

// servingCertificate returns the certificate of the config, the one that the cluster signs, or one
// that the node signs itself.
func servingCertificate(cfg *configs.Config, by SecureDeps) (certs.Serving, error) {
	k := &cfg.Kubelet
	switch {
	case k.TLSCertFile != "":
		return certs.NewPair(k.TLSCertFile, k.TLSPrivateKeyFile, by.Logger)
	case by.Serving != nil:
		return by.Serving, nil
	}
	return certs.NewSelfSigned(cfg.CertDir, []string{by.Node}, by.Logger)
}
