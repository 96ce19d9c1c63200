package configs

// ServesAPI reports whether the kubelet's API is served on a port with TLS: on a node of a cluster always, as by a kubelet. On a node without one only where
// address or port is set and callers can be known: by their certificates (authentication.x509.clientCAFile), or because the config lets everybody in.
func (c *Config) ServesAPI() bool { return c.whyNoAPI() == "" }

// whyNoAPI says why there is no such port; empty where there is one.
func (c *Config) whyNoAPI() string {
	k := &c.Kubelet
	switch {
	case k.EnableServer != nil && !*k.EnableServer:
		return "enableServer is false"
	case c.Kubeconfig != "":
		return ""
	case !c.IsSet("address") && !c.IsSet("port"):
		return "without --kubeconfig the API is only served with TLS where address or port is set; berth's own commands use the local socket"
	case k.Authentication.X509.ClientCAFile == "" && (k.Authentication.Anonymous.Enabled == nil || !*k.Authentication.Anonymous.Enabled):
		return "without --kubeconfig nobody can be known but by a certificate: set authentication.x509.clientCAFile to serve the API with TLS"
	}
	return ""
}

// apiFields are the fields that only count where the API is served with TLS.
func apiFields() []string {
	return []string{
		"address", "port", "tlsCertFile", "tlsPrivateKeyFile", "tlsCipherSuites", "tlsCurvePreferences", "tlsMinVersion", "authentication", "authorization",
		"enableDebuggingHandlers", "enableProfilingHandler",
	}
}

// AllowsAll reports whether whoever is known on the API's port may do everything there. Without a cluster nobody can be asked: unless the config names a
// mode, it is so.
func (c *Config) AllowsAll() bool {
	return c.Kubelet.Authorization.Mode == "AlwaysAllow" || c.Kubeconfig == "" && !c.IsSet("authorization.mode")
}
