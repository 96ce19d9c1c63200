package configs

import (
	"net"
	"strconv"
)

// Port is a TCP port that the agent serves.
type Port struct {
	// Name says what is served, and Setting names the field of the port's number. Address is
	// host:port.
	Name, Setting, Address string
}

// The names of ports.
const (
	PortHealthz  = "healthz"
	PortReadOnly = "read-only"
	PortAPI      = "API"
)

// Ports returns the TCP ports that the agent serves.
func (c *Config) Ports() []Port {
	k := &c.Kubelet
	var ports []Port
	add := func(name, setting, host string, port int32) {
		if port > 0 {
			ports = append(ports, Port{name, setting, net.JoinHostPort(host, strconv.Itoa(int(port)))})
		}
	}
	if k.HealthzPort != nil {
		add(PortHealthz, "healthzPort", k.HealthzBindAddress, *k.HealthzPort)
	}
	add(PortReadOnly, "readOnlyPort", k.Address, k.ReadOnlyPort)
	if c.ServesAPI() {
		add(PortAPI, "port", k.Address, k.Port)
	}
	return ports
}

// ServesAPI reports whether the agent serves the kubelet's API on a port with TLS. On a node of a
// cluster it always does, as a kubelet does. On a node without a cluster it does so only if address
// or port is set and callers can be identified by certificates (authentication.x509.clientCAFile),
// or if the config allows everybody.
func (c *Config) ServesAPI() bool { return c.whyNoAPI() == "" }

// whyNoAPI says why there is no such port; it is empty if there is one.
func (c *Config) whyNoAPI() string {
	k := &c.Kubelet
	switch {
	case k.EnableServer != nil && !*k.EnableServer:
		return "enableServer is false"
	case c.Kubeconfig != "":
		return ""
	case !c.IsSet("address") && !c.IsSet("port"):
		return "without --kubeconfig the API is only served with TLS where address or port is set; berth's own " +
			"commands use the local socket"
	case k.Authentication.X509.ClientCAFile == "" &&
		(k.Authentication.Anonymous.Enabled == nil || !*k.Authentication.Anonymous.Enabled):
		return "without --kubeconfig nobody can be known but by a certificate: set authentication.x509.clientCAFile " +
			"to serve the API with TLS"
	}
	return ""
}

// apiFields returns the fields that have an effect only if the API is served with TLS.
func apiFields() []string {
	return []string{
		"address", "port", "tlsCertFile", "tlsPrivateKeyFile", "tlsCipherSuites", "tlsCurvePreferences",
		"tlsMinVersion", "authentication", "authorization",
		"enableDebuggingHandlers", "enableProfilingHandler",
	}
}

// AllowsAll reports whether every authenticated caller may do everything on the API's port. Without
// a cluster there is nobody to ask, so this is the default unless the config names a mode.
func (c *Config) AllowsAll() bool {
	return c.Kubelet.Authorization.Mode == "AlwaysAllow" || c.Kubeconfig == "" && !c.IsSet("authorization.mode")
}
