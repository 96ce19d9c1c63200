package generate

import (
	"bytes"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// The first line of a pod's hosts file. Tools and tests look for it.
const (
	hostsHeader            = "# Kubernetes-managed hosts file.\n"
	hostsHeaderHostNetwork = "# Kubernetes-managed hosts file (host network).\n"
	hostsAliasesHeader     = "\n# Entries added by HostAliases.\n"
)

// hostsLocal has the lines that every pod with a network of its own gets.
const hostsLocal = "127.0.0.1\tlocalhost\n" +
	"::1\tlocalhost ip6-localhost ip6-loopback\n" +
	"fe00::0\tip6-localnet\n" +
	"fe00::0\tip6-mcastprefix\n" +
	"fe00::1\tip6-allnodes\n" +
	"fe00::2\tip6-allrouters\n"

// HostsInput is what a pod's hosts file is made of.
type HostsInput struct {
	Pod *v1.Pod
	// PodIPs are the pod's addresses. They are not used for a host-network pod.
	PodIPs []string
	// ClusterDomain is the config's, for pods with a subdomain.
	ClusterDomain string
	// NodeFile is the content of the node's hosts file, which a host-network pod gets. The caller
	// bounds its size.
	NodeFile []byte
}

// NeedsHostsFile reports whether the pod's containers get a hosts file now. A pod with a network of
// its own must have its addresses first.
func NeedsHostsFile(pod *v1.Pod, podIPs []string) bool {
	return pod.Spec.HostNetwork || len(podIPs) > 0
}

// HostsFile returns the content of the pod's /etc/hosts: the node's file, or lines with the pod's
// addresses and name. The pod's hostAliases follow in both cases. The error, from [Hostname], is a
// [ConfigError].
func HostsFile(in HostsInput) ([]byte, error) {
	var out bytes.Buffer
	if in.Pod.Spec.HostNetwork {
		out.WriteString(hostsHeaderHostNetwork)
		out.Write(in.NodeFile)
	} else {
		host, domain, err := Hostname(in.Pod, in.ClusterDomain)
		if err != nil {
			return nil, err
		}
		names := host
		if domain != "" {
			names = host + "." + domain + "\t" + host
		}
		out.WriteString(hostsHeader + hostsLocal)
		for _, ip := range in.PodIPs {
			out.WriteString(ip + "\t" + names + "\n")
		}
	}
	if len(in.Pod.Spec.HostAliases) > 0 {
		out.WriteString(hostsAliasesHeader)
	}
	for _, alias := range in.Pod.Spec.HostAliases {
		out.WriteString(alias.IP + "\t" + strings.Join(alias.Hostnames, "\t") + "\n")
	}
	return out.Bytes(), nil
}
