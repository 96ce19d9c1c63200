package agent

import (
	"github.com/berthd/berth/agent/auth"
	"github.com/berthd/berth/agent/certs"
	"github.com/berthd/berth/agent/server"
)

// secure adds to the server's surroundings what the API's port needs: a certificate, and the guard that knows callers and asks what they may.
func (a *Agent) secure(deps *server.Deps) error {
	k := &a.cfg.Kubelet
	limits, err := certs.LimitsOf(k.TLSMinVersion, k.TLSCipherSuites, k.TLSCurvePreferences)
	if err != nil {
		return err
	}
	cert, err := a.servingCertificate()
	if err != nil {
		return err
	}
	guard := auth.Deps{Logger: a.log}
	if file := k.Authentication.X509.ClientCAFile; file != "" {
		bundle, err := certs.NewBundle(file, a.log)
		if err != nil {
			return err
		}
		guard.Authorities = bundle.Pool
	}
	if a.deps.Conn != nil {
		// Whoever asks for a review waits, so it does not wait behind the agent's own requests.
		if guard.Reviews, err = auth.NewReviews(a.deps.Conn.Unbounded()); err != nil {
			return err
		}
	}
	deps.TLS = certs.ServerConfig(cert, guard.Authorities, limits)
	deps.Guard = auth.New(auth.Config{
		Node: a.node.Name, Anonymous: *k.Authentication.Anonymous.Enabled, Tokens: *k.Authentication.Webhook.Enabled,
		TokenTTL: k.Authentication.Webhook.CacheTTL.Duration, AllowAll: a.cfg.AllowsAll(),
		AllowedTTL: k.Authorization.Webhook.CacheAuthorizedTTL.Duration, RefusedTTL: k.Authorization.Webhook.CacheUnauthorizedTTL.Duration,
	}, guard)
	return nil
}

// servingCertificate returns the certificate of the config, the one that the cluster signs, or one that the node has signed itself.
func (a *Agent) servingCertificate() (certs.Serving, error) {
	k := &a.cfg.Kubelet
	switch {
	case k.TLSCertFile != "":
		return certs.NewPair(k.TLSCertFile, k.TLSPrivateKeyFile, a.log)
	case a.deps.Rotators.Serving != nil:
		return a.deps.Rotators.Serving, nil
	}
	return certs.NewSelfSigned(a.cfg.CertDir, []string{a.node.Name}, a.log)
}
