package configs

import (
	"fmt"
	"os"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// NodeName returns the name of this node: --hostname-override, or else the host's name, trimmed and
// in lower case. It fails if the result is not a DNS subdomain, because the names of pods and of
// the node object contain it.
func NodeName(c *Config) (string, error) {
	name := c.HostnameOverride
	if name == "" {
		host, err := os.Hostname()
		if err != nil {
			return "", fmt.Errorf("read the host name: %w", err)
		}
		name = host
	}
	name = strings.ToLower(strings.TrimSpace(name))
	if name == "" {
		return "", fmt.Errorf("the node name is empty: set --hostname-override")
	}
	if msgs := validation.IsDNS1123Subdomain(name); len(msgs) > 0 {
		return "", fmt.Errorf("the node name %q is not valid, set --hostname-override: %s", name,
			strings.Join(msgs, "; "))
	}
	return name, nil
}
