package generate

import (
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	netutils "k8s.io/utils/net"
)

// The most that a pod's resolv.conf may hold (MaxDNSNameservers, MaxDNSSearchPaths and
// MaxDNSSearchListChars of the API's validation).
const (
	maxNameservers = 3
	maxSearches    = 32
	maxSearchChars = 2048
)

// clusterOption is for pods that ask the cluster's DNS: names with fewer dots are looked up in the
// search domains first.
const clusterOption = "ndots:5"

// DNS returns a pod's name resolution from its dnsPolicy and dnsConfig, cut to the limits of
// resolvers. The warnings, in the kubelet's words, say what was cut or which fallback was used. The
// result shares no list with the node.
func DNS(pod *v1.Pod, node NodeDNS) (*runtimeapi.DNSConfig, []Warning) {
	conf, warnings := baseDNS(pod, node)
	if own := pod.Spec.DNSConfig; own != nil {
		conf.Nameservers = unique(append(conf.Nameservers, own.Nameservers...))
		conf.Searches = unique(append(conf.Searches, own.Searches...))
		for _, option := range own.Options {
			text := option.Name
			if option.Value != nil && *option.Value != "" {
				text += ":" + *option.Value
			}
			conf.Options = setOption(conf.Options, text)
		}
	}
	servers, cutServers := fitServers(conf.Nameservers)
	searches, cutSearches := fitSearches(conf.Searches)
	if cutServers {
		warnings = append(warnings, Warning{
			Reason: ReasonDNSConfigForming,
			Message: "Nameserver limits were exceeded, some nameservers have been omitted, the applied nameserver " +
				"line is: " + strings.Join(servers, " "),
		})
	}
	if cutSearches {
		warnings = append(warnings, Warning{
			Reason: ReasonDNSConfigForming,
			Message: "Search Line limits were exceeded, some search paths have been omitted, the applied search " +
				"line is: " + strings.Join(searches, " "),
		})
	}
	return &runtimeapi.DNSConfig{Servers: servers, Searches: searches, Options: conf.Options}, warnings
}

// CheckSearches returns what is wrong with the search domains of the node's resolver
// configuration, in the kubelet's words. Pods lose what exceeds the limits. The search domains of a
// cluster take three places.
func CheckSearches(path string, searches []string, clusterDomain string) []Warning {
	most := maxSearches
	if clusterDomain != "" {
		most -= 3
	}
	var message string
	switch {
	case len(searches) > most:
		message = fmt.Sprintf("Resolv.conf file '%s' contains search line consisting of more than %d domains!", path, most)
	case slices.ContainsFunc(searches, func(s string) bool { return len(s) > validation.DNS1123SubdomainMaxLength }):
		message = fmt.Sprintf("Resolv.conf file %q contains a search path which length is more than allowed %d chars!",
			path, validation.DNS1123SubdomainMaxLength)
	case len(strings.Join(searches, " ")) > maxSearchChars:
		message = fmt.Sprintf("Resolv.conf file '%s' contains search line which length is more than allowed %d chars!",
			path, maxSearchChars)
	default:
		return nil
	}
	return []Warning{{Reason: "CheckLimitsForResolvConf", Message: message}}
}

// baseDNS applies dnsPolicy alone. An unknown policy counts as ClusterFirst. For a host-network pod
// ClusterFirst means Default.
func baseDNS(pod *v1.Pod, node NodeDNS) (ResolvConf, []Warning) {
	policy := pod.Spec.DNSPolicy
	switch {
	case policy == v1.DNSNone:
		return ResolvConf{}, nil
	case policy == v1.DNSDefault, policy == v1.DNSClusterFirst && pod.Spec.HostNetwork:
		return hostDNS(node), nil
	case len(node.ClusterDNS) > 0:
		return clusterDNS(pod.Namespace, node), nil
	}
	if !node.Cluster {
		return hostDNS(node), nil
	}
	missing := fmt.Sprintf("kubelet does not have ClusterDNS IP configured and cannot create Pod using %q policy. "+
		"Falling back to %q policy.", v1.DNSClusterFirst, v1.DNSDefault)
	return hostDNS(node), []Warning{{
		Reason:  ReasonMissingClusterDNS,
		Message: fmt.Sprintf("pod: %q. %s", podName(pod), missing),
		Node:    missing,
	}}
}

func clusterDNS(namespace string, node NodeDNS) ResolvConf {
	conf := ResolvConf{Nameservers: slices.Clone(node.ClusterDNS), Options: []string{clusterOption}}
	if node.Resolv != nil {
		conf.Searches = slices.Clone(node.Resolv.Searches)
	}
	if domain := node.ClusterDomain; domain != "" {
		conf.Searches = unique(append([]string{namespace + ".svc." + domain, "svc." + domain, domain},
			conf.Searches...))
	}
	return conf
}

// hostDNS returns the node's own resolution. If the node has no file, the pod uses itself as its
// name server, so that it resolves nothing.
func hostDNS(node NodeDNS) ResolvConf {
	if r := node.Resolv; r != nil {
		return ResolvConf{
			Nameservers: slices.Clone(r.Nameservers),
			Searches:    slices.Clone(r.Searches),
			Options:     slices.Clone(r.Options),
		}
	}
	conf := ResolvConf{Searches: []string{"."}}
	for _, ip := range node.NodeIPs {
		if netutils.IsIPv6String(ip) {
			conf.Nameservers = append(conf.Nameservers, "::1")
		} else {
			conf.Nameservers = append(conf.Nameservers, "127.0.0.1")
		}
	}
	if len(conf.Nameservers) == 0 {
		conf.Nameservers = []string{"127.0.0.1"}
	}
	return conf
}

func fitServers(servers []string) ([]string, bool) {
	if len(servers) <= maxNameservers {
		return servers, false
	}
	return servers[:maxNameservers], true
}

// fitSearches keeps at most maxSearches domains. It drops domains on which some resolvers abort,
// and cuts the end until the line fits.
func fitSearches(searches []string) (fitting []string, cut bool) {
	if len(searches) > maxSearches {
		searches, cut = searches[:maxSearches], true
	}
	length := 0
	for _, domain := range searches {
		if len(domain) > validation.DNS1123SubdomainMaxLength {
			cut = true
			continue
		}
		need := len(domain)
		if len(fitting) > 0 {
			need++
		}
		if length+need > maxSearchChars {
			return fitting, true
		}
		length += need
		fitting = append(fitting, domain)
	}
	return fitting, cut
}

// unique drops values that came before, and keeps the order.
func unique(values []string) []string {
	seen := make(map[string]bool, len(values))
	return slices.DeleteFunc(values, func(value string) bool {
		was := seen[value]
		seen[value] = true
		return was
	})
}
