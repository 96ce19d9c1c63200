package generate

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
)

func TestHostname(t *testing.T) {
	long := strings.Repeat("a", 70)
	tests := map[string]struct {
		spec                 v1.PodSpec
		podName              string
		host, domain, kernel string
		err                  string
	}{
		"pod's name": {host: "web", kernel: "web"},
		"own":        {spec: v1.PodSpec{Hostname: "db"}, host: "db", kernel: "db"},
		"subdomain": {
			spec: v1.PodSpec{Subdomain: "sub"}, host: "web", domain: "sub.shop.svc.cluster.local", kernel: "web",
		},
		"FQDN": {
			spec: v1.PodSpec{Subdomain: "sub", SetHostnameAsFQDN: ptr(true)}, host: "web",
			domain: "sub.shop.svc.cluster.local", kernel: "web.sub.shop.svc.cluster.local",
		},
		"FQDN without domain": {spec: v1.PodSpec{SetHostnameAsFQDN: ptr(true)}, host: "web", kernel: "web"},
		"64 characters": {
			spec: v1.PodSpec{Hostname: strings.Repeat("a", 37), Subdomain: "sub", SetHostnameAsFQDN: ptr(true)},
			host: strings.Repeat("a", 37), domain: "sub.shop.svc.cluster.local",
			kernel: strings.Repeat("a", 37) + ".sub.shop.svc.cluster.local",
		},
		"65 characters": {
			spec: v1.PodSpec{Hostname: strings.Repeat("a", 38), Subdomain: "sub", SetHostnameAsFQDN: ptr(true)},
			err:  "is too long (64 characters is the max, 65 characters requested)",
		},
		"cut":           {podName: long, host: long[:63], kernel: long[:63]},
		"cut at dashes": {podName: long[:60] + "--.b.c", host: long[:60], kernel: long[:60]},
		"only dots":     {podName: strings.Repeat(".", 70), err: "was invalid"},
		"bad hostname":  {spec: v1.PodSpec{Hostname: "a_b"}, err: `pod Hostname "a_b" is not a valid DNS label`},
		"bad subdomain": {
			spec: v1.PodSpec{Subdomain: "a.b"}, err: `pod Subdomain "a.b" is not a valid DNS label`,
		},
		"override": {
			spec: v1.PodSpec{HostnameOverride: ptr("x.example.com"), Subdomain: "sub"}, host: "x.example.com",
			kernel: "x.example.com",
		},
		"bad override": {spec: v1.PodSpec{HostnameOverride: ptr("x_y")}, err: "not a valid DNS subdomain"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			pod := testPod(func(p *v1.Pod) {
				p.Spec = tc.spec
				if tc.podName != "" {
					p.Name = tc.podName
				}
			})
			kernel, err := kernelHostname(pod, "cluster.local")
			wantError(t, err, ReasonSandbox, tc.err)
			if err != nil {
				return
			}
			host, domain, err := Hostname(pod, "cluster.local")
			if diff := cmp.Diff([]string{tc.host, tc.domain, tc.kernel}, []string{host, domain, kernel}); diff != "" ||
				err != nil {
				t.Error(diff, err)
			}
		})
	}
	if _, domain, _ := Hostname(testPod(func(p *v1.Pod) { p.Spec.Subdomain = "sub" }), ""); domain != "sub.shop.svc" {
		t.Errorf("domain without a cluster domain = %q", domain)
	}
}

func TestHostsFile(t *testing.T) {
	const local = "# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost " +
		"ip6-loopback\n" +
		"fe00::0\tip6-localnet\nfe00::0\tip6-mcastprefix\nfe00::1\tip6-allnodes\nfe00::2\tip6-allrouters\n"
	const node = "127.0.0.1 localhost\n192.0.2.1 node-1\n"
	aliases := []v1.HostAlias{
		{IP: "192.0.2.9", Hostnames: []string{"a", "b"}}, {IP: "192.0.2.8", Hostnames: []string{"c"}},
	}
	tests := map[string]struct {
		spec v1.PodSpec
		want string
		err  string
	}{
		"plain": {want: local + "10.0.0.2\tweb\nfd00::2\tweb\n"},
		"subdomain": {
			spec: v1.PodSpec{Subdomain: "sub"},
			want: local + "10.0.0.2\tweb.sub.shop.svc.c\tweb\nfd00::2\tweb.sub.shop.svc.c\tweb\n",
		},
		"aliases": {
			spec: v1.PodSpec{HostAliases: aliases},
			want: local +
				"10.0.0.2\tweb\nfd00::2\tweb\n\n# Entries added by HostAliases.\n192.0.2.9\ta\tb\n192.0.2.8\tc\n",
		},
		"host network": {
			spec: v1.PodSpec{HostNetwork: true}, want: "# Kubernetes-managed hosts file (host network).\n" + node,
		},
		"host network, aliases": {
			spec: v1.PodSpec{HostNetwork: true, HostAliases: aliases[1:]},
			want: "# Kubernetes-managed hosts file (host network).\n" + node +
				"\n# Entries added by HostAliases.\n192.0.2.8\tc\n",
		},
		"bad hostname": {spec: v1.PodSpec{Hostname: "a_b"}, err: "not a valid DNS label"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := HostsFile(HostsInput{
				Pod:           testPod(func(p *v1.Pod) { p.Spec = tc.spec }),
				PodIPs:        []string{"10.0.0.2", "fd00::2"},
				ClusterDomain: "c",
				NodeFile:      []byte(node),
			})
			wantError(t, err, ReasonSandbox, tc.err)
			if diff := cmp.Diff(tc.want, string(got)); diff != "" {
				t.Error(diff)
			}
		})
	}
	host := testPod(func(p *v1.Pod) { p.Spec.HostNetwork = true })
	if NeedsHostsFile(testPod(), nil) || !NeedsHostsFile(testPod(), []string{"10.0.0.2"}) ||
		!NeedsHostsFile(host, nil) {
		t.Error("NeedsHostsFile is wrong")
	}
}
