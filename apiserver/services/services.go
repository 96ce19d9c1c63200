package services

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"text/template"

	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/kubernetes"
	"k8s.io/component-base/version"
)

// dnsHost is the place of the DNS server's address in the range of Services, as kubeadm has it.
const dnsHost = 10

// Options are the settings of kube-proxy and CoreDNS. An empty one is found out or has a default.
type Options struct {
	// Server is the URL under which the nodes reach the API server. Default: the address that the
	// server advertises.
	Server string
	// DNS is the address of the Service kube-dns. Default: the tenth of the range of Services.
	DNS string
	// Domain is the domain of the cluster, as the agents' clusterDomain.
	Domain string
	// ProxyImage and DNSImage are the images. [Defaults] has upstream's.
	ProxyImage, DNSImage string
}

// Defaults returns options with upstream's images: kube-proxy of the release that is linked, and
// the CoreDNS that kubeadm of that release takes.
func Defaults() Options {
	return Options{
		Domain:     "cluster.local",
		ProxyImage: "registry.k8s.io/kube-proxy:" + version.Get().GitVersion,
		DNSImage:   "registry.k8s.io/coredns/coredns:v1.14.2",
	}
}

//go:embed services.yaml
var manifests string

// Manifests returns the objects as YAML, and the address of the DNS server, which the nodes' agents
// need as clusterDNS. client is one of the server that runs. It is an error if that server cannot
// be reached from pods, or does not serve DaemonSets and Deployments.
func Manifests(ctx context.Context, client kubernetes.Interface, o Options) (text []byte, dns string, err error) {
	if _, err := client.AppsV1().DaemonSets(metav1.NamespaceSystem).List(ctx, metav1.ListOptions{Limit: 1}); err != nil {
		if apierrors.IsNotFound(err) {
			return nil, "", errors.New("the server has no DaemonSets and Deployments: start berth-apiserver with --workloads")
		}
		return nil, "", fmt.Errorf("look for DaemonSets: %w", err)
	}
	advertised, err := advertised(ctx, client)
	if err != nil {
		return nil, "", err
	}
	if o.Server == "" {
		o.Server = "https://" + advertised
	}
	if o.DNS == "" {
		if o.DNS, err = dnsAddress(ctx, client); err != nil {
			return nil, "", err
		}
	} else if err := checkDNS(ctx, client, o.DNS); err != nil {
		return nil, "", err
	}
	if why := validation.IsDNS1123Subdomain(o.Domain); len(why) > 0 {
		return nil, "", fmt.Errorf("read --cluster-domain %q: %s", o.Domain, strings.Join(why, "; "))
	}
	quoted := o
	for _, value := range []*string{&quoted.Server, &quoted.DNS, &quoted.ProxyImage, &quoted.DNSImage} {
		*value = strconv.Quote(*value)
	}
	var out bytes.Buffer
	if err := template.Must(template.New("services").Parse(manifests)).Execute(&out, quoted); err != nil {
		return nil, "", fmt.Errorf("make the manifests: %w", err)
	}
	return out.Bytes(), o.DNS, nil
}

// advertised returns where the pods of the Service kubernetes reach the server: address and port.
func advertised(ctx context.Context, client kubernetes.Interface) (string, error) {
	slices, err := client.DiscoveryV1().EndpointSlices(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{
		LabelSelector: discoveryv1.LabelServiceName + "=kubernetes",
	})
	if err != nil {
		return "", fmt.Errorf("look where pods reach the server: %w", err)
	}
	for _, s := range slices.Items {
		for _, e := range s.Endpoints {
			if len(e.Addresses) > 0 && len(s.Ports) > 0 && s.Ports[0].Port != nil {
				return net.JoinHostPort(e.Addresses[0], strconv.Itoa(int(*s.Ports[0].Port))), nil
			}
		}
	}
	return "", errors.New("no pod reaches the server: start berth-apiserver with --bind-address 0.0.0.0, " +
		"or with an address of this host that is not the loopback's")
}

// checkDNS returns an error if the address is in no range of Services.
func checkDNS(ctx context.Context, client kubernetes.Interface, address string) error {
	dns, err := netip.ParseAddr(address)
	if err != nil {
		return fmt.Errorf("read --cluster-dns %q: it is no IP address", address)
	}
	all, err := client.NetworkingV1().ServiceCIDRs().List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("find the ranges of Services: %w", err)
	}
	var ranges []string
	for _, r := range all.Items {
		for _, text := range r.Spec.CIDRs {
			if prefix, err := netip.ParsePrefix(text); err == nil && prefix.Contains(dns) {
				return nil
			}
		}
		ranges = append(ranges, r.Spec.CIDRs...)
	}
	return fmt.Errorf("--cluster-dns %s is in no range of Services (%s): choose an address in one, or leave the flag out",
		address, strings.Join(ranges, ", "))
}

// dnsAddress returns the tenth address of the range whose first one is that of the Service
// kubernetes.
func dnsAddress(ctx context.Context, client kubernetes.Interface) (string, error) {
	service, err := client.CoreV1().Services(metav1.NamespaceDefault).Get(ctx, "kubernetes", metav1.GetOptions{})
	if err != nil {
		return "", fmt.Errorf("find the range of Services: %w", err)
	}
	address, err := netip.ParseAddr(strings.TrimSpace(service.Spec.ClusterIP))
	if err != nil {
		return "", fmt.Errorf("read the address of the Service kubernetes: %w", err)
	}
	for range dnsHost - 1 {
		address = address.Next()
	}
	return address.String(), nil
}
