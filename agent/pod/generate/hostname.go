package generate

import (
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

const (
	// maxHostname is the longest host name: 64 bytes with the terminating zero (HOST_NAME_MAX).
	maxHostname = 63
	// maxFQDN is how many characters the kernel's nodename field holds.
	maxFQDN = 64
)

// Hostname returns a pod's host name and its domain. The domain is empty for a pod without a
// subdomain. A host name over 63 characters is cut there, and does not end in a dash or a dot
// afterwards. The error is a [ConfigError].
func Hostname(pod *v1.Pod, clusterDomain string) (host, domain string, err error) {
	host = pod.Name
	switch spec := &pod.Spec; {
	case spec.HostnameOverride != nil:
		if errs := validation.IsDNS1123Subdomain(*spec.HostnameOverride); len(errs) > 0 {
			return "", "", sandboxError("pod HostnameOverride %q is not a valid DNS subdomain: %s",
				*spec.HostnameOverride, strings.Join(errs, ";"))
		}
		host, err = cutHostname(pod.Name, *spec.HostnameOverride)
		return host, "", err
	case spec.Hostname != "":
		if errs := validation.IsDNS1123Label(spec.Hostname); len(errs) > 0 {
			return "", "", sandboxError("pod Hostname %q is not a valid DNS label: %s", spec.Hostname,
				strings.Join(errs, ";"))
		}
		host = spec.Hostname
	}
	if host, err = cutHostname(pod.Name, host); err != nil || pod.Spec.Subdomain == "" {
		return host, "", err
	}
	if errs := validation.IsDNS1123Label(pod.Spec.Subdomain); len(errs) > 0 {
		return "", "", sandboxError("pod Subdomain %q is not a valid DNS label: %s", pod.Spec.Subdomain,
			strings.Join(errs, ";"))
	}
	domain = fmt.Sprintf("%s.%s.svc.%s", pod.Spec.Subdomain, pod.Namespace, clusterDomain)
	return host, strings.TrimSuffix(domain, "."), nil
}

func cutHostname(pod, host string) (string, error) {
	if len(host) <= maxHostname {
		return host, nil
	}
	cut := strings.TrimRight(host[:maxHostname], "-.")
	if cut == "" {
		return "", sandboxError("hostname for pod %q was invalid: %q", pod, host)
	}
	return cut, nil
}

// kernelHostname returns the name that the sandbox's kernel gets: the host name, or with
// setHostnameAsFQDN the full name.
func kernelHostname(pod *v1.Pod, clusterDomain string) (string, error) {
	host, domain, err := Hostname(pod, clusterDomain)
	if err != nil || domain == "" || !isTrue(pod.Spec.SetHostnameAsFQDN) {
		return host, err
	}
	fqdn := host + "." + domain
	if len(fqdn) > maxFQDN {
		return "", sandboxError("failed to construct FQDN from pod hostname and cluster domain, FQDN %s is too long "+
			"(%d characters is the max, %d characters requested)",
			fqdn, maxFQDN, len(fqdn))
	}
	return fqdn, nil
}
