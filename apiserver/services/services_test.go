package services

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"sigs.k8s.io/yaml"
)

// server is an API that pods reach at 192.0.2.1:6443.
func server(address string) *fake.Clientset {
	port := int32(6443)
	return fake.NewClientset(
		&networkingv1.ServiceCIDR{
			ObjectMeta: metav1.ObjectMeta{Name: "kubernetes"},
			Spec:       networkingv1.ServiceCIDRSpec{CIDRs: []string{"10.96.0.0/16", "fd00::/112"}},
		},
		&corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Name: "kubernetes", Namespace: "default"},
			Spec:       corev1.ServiceSpec{ClusterIP: address},
		},
		&discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{
				Name: "kubernetes", Namespace: "default", Labels: map[string]string{discoveryv1.LabelServiceName: "kubernetes"},
			},
			Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"192.0.2.1"}}},
			Ports:     []discoveryv1.EndpointPort{{Port: &port}},
		},
	)
}

func TestManifests(t *testing.T) {
	for _, tc := range []struct {
		name, first string
		change      func(*Options)
		want        []string
	}{
		{"defaults", "10.96.0.1", nil, []string{
			`server: "https://192.0.2.1:6443"`, `clusterIP: "10.96.0.10"`, "kubernetes cluster.local ",
			`image: "registry.k8s.io/kube-proxy:v`, `image: "registry.k8s.io/coredns/coredns:v`,
		}},
		{"IPv6", "fd00::1", nil, []string{`clusterIP: "fd00::a"`}},
		{"its own", "10.96.0.1", func(o *Options) {
			*o = Options{
				Server: "https://node:1", DNS: "10.96.0.9", Domain: "here", ProxyImage: "a/b: c", DNSImage: "d:e",
			}
		}, []string{
			`server: "https://node:1"`, `clusterIP: "10.96.0.9"`, "kubernetes here ", `image: "a/b: c"`, `image: "d:e"`,
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			o := Defaults()
			if tc.change != nil {
				tc.change(&o)
			}
			text, _, err := Manifests(t.Context(), server(tc.first), o)
			if err != nil {
				t.Fatal(err)
			}
			for _, want := range tc.want {
				if !strings.Contains(string(text), want) {
					t.Errorf("the manifests lack %s", want)
				}
			}
			for document := range strings.SplitSeq(string(text), "\n---\n") {
				var object metav1.PartialObjectMetadata
				if err := yaml.Unmarshal([]byte(document), &object); err != nil || object.Kind == "" {
					t.Errorf("%v: no object:\n%s", err, document)
				}
			}
		})
	}
}

func TestManifestsRefused(t *testing.T) {
	o := Defaults()
	o.Domain = "a b"
	if _, _, err := Manifests(t.Context(), server("10.96.0.1"), o); err == nil ||
		!strings.Contains(err.Error(), `--cluster-domain "a b"`) {
		t.Errorf("a domain with a space: %v", err)
	}
	for dns, want := range map[string]string{
		"foo":           `--cluster-dns "foo": it is no IP address`,
		"10.97.0.10":    "--cluster-dns 10.97.0.10 is in no range of Services (10.96.0.0/16, fd00::/112)",
		"2001:db8::a":   "--cluster-dns 2001:db8::a is in no range",
		"fd00::2:0:0:1": "is in no range",
	} {
		o := Defaults()
		o.DNS = dns
		if _, _, err := Manifests(t.Context(), server("10.96.0.1"), o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the address %s of the DNS server: %v, want %q", dns, err, want)
		}
	}
	if _, _, err := Manifests(t.Context(), fake.NewClientset(), Defaults()); err == nil ||
		!strings.Contains(err.Error(), "--bind-address") {
		t.Errorf("a server that no pod reaches: %v", err)
	}
}
