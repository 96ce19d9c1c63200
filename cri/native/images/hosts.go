package images

import (
	"context"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/containerd/containerd/v2/core/remotes/docker"
	"github.com/containerd/containerd/v2/core/remotes/docker/config"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berthd/berth/cri/internal/classify"
)

// dockerHub is how images call the registry that has several host names.
const dockerHub = "docker.io"

// login is what a pull may show to one registry.
type login struct {
	// host is the registry, as hostOf returns it.
	host string
	// username and secret log in. An empty username with a secret is an identity token.
	username, secret string
	// bearer, if set, is sent as it is.
	bearer string
}

// loginOf reads a login for an image of the registry.
func loginOf(registry string, auth *runtimeapi.AuthConfig) (login, error) {
	out := login{host: hostOf(registry)}
	if server := auth.GetServerAddress(); server != "" {
		out.host = hostOf(server)
	}
	switch {
	case auth.GetRegistryToken() != "":
		out.bearer = auth.GetRegistryToken()
	case auth.GetIdentityToken() != "":
		out.secret = auth.GetIdentityToken()
	case auth.GetUsername() != "":
		out.username, out.secret = auth.GetUsername(), auth.GetPassword()
	case auth.GetAuth() != "":
		decoded, err := base64.StdEncoding.DecodeString(auth.GetAuth())
		username, password, ok := strings.Cut(strings.TrimRight(string(decoded), "\x00"), ":")
		if err != nil || !ok {
			return login{}, classify.Invalidf("the login's \"auth\" is not \"username:password\" in base64")
		}
		out.username, out.secret = username, password
	}
	return out, nil
}

// hostOf returns the host, with its port, of a registry's address, which may be a URL or have a
// path.
func hostOf(address string) string {
	if u, err := url.Parse(address); err == nil && u.Host != "" {
		address = u.Host
	}
	address, _, _ = strings.Cut(address, "/")
	switch address = strings.ToLower(address); address {
	case "registry-1.docker.io", "index.docker.io":
		return dockerHub
	}
	return address
}

// credentials returns the username and secret for a host, empty for any host but the login's own.
func (l login) credentials(host string) (username, secret string, err error) {
	if hostOf(host) != l.host {
		return "", "", nil
	}
	return l.username, l.secret, nil
}

// hosts returns how a registry is reached: its mirrors and then itself, as its hosts.toml says, or
// itself alone.
func (s *Service) hosts(
	ctx context.Context, registry string, auth *runtimeapi.AuthConfig,
) (docker.RegistryHosts, error) {
	who, err := loginOf(registry, auth)
	if err != nil {
		return nil, err
	}
	configured := config.ConfigureHosts(ctx, config.HostOptions{
		HostDir:     config.HostDirFromRoot(s.cfg.RegistryDir),
		Credentials: who.credentials,
		UpdateClient: func(c *http.Client) error {
			if _, ok := c.Transport.(*watched); !ok {
				c.Transport = &watched{RoundTripper: c.Transport, stall: s.cfg.Stall}
			}
			return nil
		},
	})
	return func(host string) ([]docker.RegistryHost, error) {
		found, err := configured(host)
		if err != nil {
			return nil, fmt.Errorf("read how to reach registry %s from %s: %w", host, s.cfg.RegistryDir, err)
		}
		for i := range found {
			if who.bearer != "" && hostOf(found[i].Host) == who.host {
				found[i].Header = withBearer(found[i].Header, who.bearer)
			}
		}
		return found, nil
	}, nil
}

func withBearer(header http.Header, token string) http.Header {
	out := header.Clone()
	if out == nil {
		out = http.Header{}
	}
	out.Set("Authorization", "Bearer "+token)
	return out
}
