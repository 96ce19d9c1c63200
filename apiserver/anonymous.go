package apiserver

import (
	"fmt"
	"os"
	"path/filepath"
)

// anonymousPaths is kube-apiserver's authentication configuration (KEP-4633): a request without
// credentials is refused with 401 unless it asks for health or for the version.
const anonymousPaths = `# berth-apiserver writes this file at each start.
apiVersion: apiserver.config.k8s.io/v1
kind: AuthenticationConfiguration
anonymous:
  enabled: true
  conditions:
  - path: /healthz
  - path: /livez
  - path: /readyz
  - path: /version
`

// restrictAnonymous has the server use that configuration, unless flags say how users are
// authenticated: kube-apiserver refuses both.
func (o *Options) restrictAnonymous() error {
	a := o.Server.Authentication
	if a.AuthenticationConfigFile != "" || a.Anonymous.FlagsSet || a.OIDC.FlagsSet {
		return nil
	}
	path := filepath.Join(o.DataDir, "authentication.yaml")
	// A disk may be full when there is nothing to write.
	if text, err := os.ReadFile(path); err != nil || string(text) != anonymousPaths {
		if err := os.WriteFile(path, []byte(anonymousPaths), 0o600); err != nil {
			return fmt.Errorf("write the authentication configuration: %w", err)
		}
	}
	a.AuthenticationConfigFile = path
	return nil
}
