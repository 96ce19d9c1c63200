package generate

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
)

func TestDNS(t *testing.T) {
	resolv := &ResolvConf{
		Nameservers: []string{"192.0.2.53"},
		Searches:    []string{"lan", "example.com"},
		Options:     []string{"timeout:1", "rotate"},
	}
	alone := NodeDNS{Resolv: resolv}
	cluster := NodeDNS{Resolv: resolv, ClusterDNS: []string{"10.96.0.10"}, ClusterDomain: "cluster.local"}
	numbered := func(n, length int) (out []string) {
		for i := range n {
			name := fmt.Sprintf("d%03d", i)
			out = append(out, name+strings.Repeat("x", length-len(name)))
		}
		return out
	}
	tests := map[string]struct {
		node                       NodeDNS
		policy                     v1.DNSPolicy
		host                       bool
		own                        *v1.PodDNSConfig
		servers, searches, options []string
		warnings                   []string
	}{
		"default": {
			node: cluster, policy: v1.DNSDefault,
			servers: resolv.Nameservers, searches: resolv.Searches, options: resolv.Options,
		},
		"cluster first": {
			node: cluster, policy: v1.DNSClusterFirst, servers: []string{"10.96.0.10"},
			searches: []string{"shop.svc.cluster.local", "svc.cluster.local", "cluster.local", "lan", "example.com"},
			options:  []string{"ndots:5"},
		},
		"no policy is cluster first": {
			node:    NodeDNS{ClusterDNS: []string{"10.96.0.10"}},
			servers: []string{"10.96.0.10"},
			options: []string{"ndots:5"},
		},
		"a domain of the cluster among the node's": {
			node: NodeDNS{
				Resolv:        &ResolvConf{Searches: []string{"cluster.local", "lan"}},
				ClusterDNS:    []string{"10.96.0.10"},
				ClusterDomain: "cluster.local",
			},
			policy:   v1.DNSClusterFirst,
			servers:  []string{"10.96.0.10"},
			searches: []string{"shop.svc.cluster.local", "svc.cluster.local", "cluster.local", "lan"},
			options:  []string{"ndots:5"},
		},
		"cluster first on the host's network": {
			node: cluster, policy: v1.DNSClusterFirst, host: true,
			servers: resolv.Nameservers, searches: resolv.Searches, options: resolv.Options,
		},
		"cluster first with host network": {
			node: cluster, policy: v1.DNSClusterFirstWithHostNet, host: true, servers: []string{"10.96.0.10"},
			searches: []string{"shop.svc.cluster.local", "svc.cluster.local", "cluster.local", "lan", "example.com"},
			options:  []string{"ndots:5"},
		},
		"no cluster DNS in a cluster": {
			node: NodeDNS{Resolv: resolv, Cluster: true}, policy: v1.DNSClusterFirst,
			servers: resolv.Nameservers, searches: resolv.Searches, options: resolv.Options,
			warnings: []string{ReasonMissingClusterDNS},
		},
		"no cluster": {
			node: alone, policy: v1.DNSClusterFirst,
			servers: resolv.Nameservers, searches: resolv.Searches, options: resolv.Options,
		},
		"none": {node: cluster, policy: v1.DNSNone},
		"none with a config": {
			node: cluster, policy: v1.DNSNone,
			own: &v1.PodDNSConfig{
				Nameservers: []string{"1.2.3.4", "1.2.3.4"}, Searches: []string{"a", "a"},
				Options: []v1.PodDNSConfigOption{
					{Name: "ndots", Value: ptr("2")}, {Name: "edns0"}, {Name: "use-vc", Value: ptr("")},
				},
			},
			servers: []string{"1.2.3.4"}, searches: []string{"a"}, options: []string{"ndots:2", "edns0", "use-vc"},
		},
		"config merges": {
			node: cluster, policy: v1.DNSClusterFirst,
			own: &v1.PodDNSConfig{
				Nameservers: []string{"1.2.3.4"}, Searches: []string{"lan", "b"},
				Options: []v1.PodDNSConfigOption{{Name: "ndots", Value: ptr("1")}},
			},
			servers: []string{"10.96.0.10", "1.2.3.4"},
			searches: []string{
				"shop.svc.cluster.local", "svc.cluster.local", "cluster.local", "lan", "example.com", "b",
			},
			options: []string{"ndots:1"},
		},
		"no resolv.conf": {policy: v1.DNSDefault, servers: []string{"127.0.0.1"}, searches: []string{"."}},
		"no resolv.conf, two families": {
			node:   NodeDNS{NodeIPs: []string{"2001:db8::1", "192.0.2.1"}},
			policy: v1.DNSDefault, servers: []string{"::1", "127.0.0.1"}, searches: []string{"."},
		},
		"too many nameservers": {
			policy:   v1.DNSNone,
			own:      &v1.PodDNSConfig{Nameservers: []string{"1.1.1.1", "2.2.2.2", "3.3.3.3", "4.4.4.4"}},
			servers:  []string{"1.1.1.1", "2.2.2.2", "3.3.3.3"},
			warnings: []string{ReasonDNSConfigForming},
		},
		"32 domains": {
			policy: v1.DNSNone, own: &v1.PodDNSConfig{Searches: numbered(32, 10)}, searches: numbered(32, 10),
		},
		"33 domains": {
			policy: v1.DNSNone, own: &v1.PodDNSConfig{Searches: numbered(33, 10)}, searches: numbered(32, 10),
			warnings: []string{ReasonDNSConfigForming},
		},
		"2048 characters": {
			// 8 domains of 227 with 7 spaces make 1823; one of 224 and its space make 2048.
			policy: v1.DNSNone, own: &v1.PodDNSConfig{Searches: append(numbered(8, 227), strings.Repeat("z", 224))},
			searches: append(numbered(8, 227), strings.Repeat("z", 224)),
		},
		"2049 characters": {
			policy:   v1.DNSNone,
			own:      &v1.PodDNSConfig{Searches: append(numbered(8, 227), strings.Repeat("z", 225), "a")},
			searches: numbered(8, 227),
			warnings: []string{ReasonDNSConfigForming},
		},
		"a domain of 254 characters": {
			policy: v1.DNSNone, own: &v1.PodDNSConfig{Searches: []string{"a", strings.Repeat("b", 254), "c"}},
			searches: []string{"a", "c"}, warnings: []string{ReasonDNSConfigForming},
		},
		"both limits": {
			policy: v1.DNSNone,
			own: &v1.PodDNSConfig{
				Nameservers: []string{"1.1.1.1", "2.2.2.2", "3.3.3.3", "4.4.4.4"}, Searches: numbered(33, 4),
			},
			servers: []string{"1.1.1.1", "2.2.2.2", "3.3.3.3"}, searches: numbered(32, 4),
			warnings: []string{ReasonDNSConfigForming, ReasonDNSConfigForming},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			pod := testPod(func(p *v1.Pod) {
				p.Spec.DNSPolicy, p.Spec.DNSConfig, p.Spec.HostNetwork = tc.policy, tc.own, tc.host
			})
			before := fmt.Sprint(tc.node, tc.node.Resolv, tc.own)
			got, warnings := DNS(pod, tc.node)
			var reasons []string
			for _, w := range warnings {
				reasons = append(reasons, w.Reason)
			}
			for _, pair := range [][2][]string{
				{
					tc.servers, got.Servers,
				}, {tc.searches, got.Searches}, {tc.options, got.Options}, {
					tc.warnings,
					reasons,
				},
			} {
				if diff := cmp.Diff(pair[0], pair[1]); diff != "" {
					t.Error(diff)
				}
			}
			if again, _ := DNS(pod, tc.node); !cmp.Equal(got.Searches, again.Searches) ||
				before != fmt.Sprint(tc.node, tc.node.Resolv, tc.own) {
				t.Error("an input was changed")
			}
		})
	}
}

// The warnings have the kubelet's words.
func TestDNSWarnings(t *testing.T) {
	const missing = `kubelet does not have ClusterDNS IP configured and cannot create Pod using "ClusterFirst" ` +
		`policy. Falling back to "Default" policy.`
	servers := []string{"1.1.1.1", "2.2.2.2", "3.3.3.3", "4.4.4.4"}
	for name, tc := range map[string]struct {
		node NodeDNS
		own  *v1.PodDNSConfig
		want Warning
	}{
		"no cluster DNS": {
			node: NodeDNS{Cluster: true},
			want: Warning{ReasonMissingClusterDNS, `pod: "web_shop(u)". ` + missing, missing},
		},
		"nameservers": {own: &v1.PodDNSConfig{Nameservers: servers}, want: Warning{
			Reason: ReasonDNSConfigForming,
			Message: "Nameserver limits were exceeded, some nameservers have been omitted, the applied nameserver " +
				"line is: 1.1.1.1 2.2.2.2 3.3.3.3",
		}},
		"searches": {own: &v1.PodDNSConfig{Searches: []string{"a", strings.Repeat("b", 254), "c"}}, want: Warning{
			Reason: ReasonDNSConfigForming,
			Message: "Search Line limits were exceeded, some search paths have been omitted, the applied search line " +
				"is: a c",
		}},
	} {
		pod := &v1.Pod{}
		pod.Namespace, pod.Name, pod.UID = "shop", "web", "u"
		if tc.own != nil {
			pod.Spec.DNSPolicy, pod.Spec.DNSConfig = v1.DNSNone, tc.own
		}
		if _, got := DNS(pod, tc.node); len(got) != 1 || got[0] != tc.want {
			t.Errorf("%s: warnings %+v, want %+v", name, got, tc.want)
		}
	}
}

func TestParseResolvConf(t *testing.T) {
	got, err := ParseResolvConf([]byte(`# comment
; nameserver 9.9.9.9
nameserver 1.1.1.1
	nameserver   2001:db8::1%eth0   trailing
domain ignored.example
search old.example
search new.example. . lan  
options ndots:1 rotate
options ndots:3 timeout:2`))
	want := ResolvConf{
		Nameservers: []string{"1.1.1.1", "2001:db8::1%eth0"},
		Searches:    []string{"new.example", "lan"},
		Options:     []string{"ndots:3", "rotate", "timeout:2"},
	}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Error(diff, err)
	}
	if _, err := ParseResolvConf([]byte("nameserver 1.1.1.1\nnameserver\nnameserver ")); err == nil ||
		!strings.Contains(err.Error(), "line 2") || !strings.Contains(err.Error(), "line 3") {
		t.Errorf("error = %v, want lines 2 and 3", err)
	}
	if got, err := ParseResolvConf(nil); err != nil || !cmp.Equal(got, ResolvConf{}) {
		t.Errorf("empty file: %v, %v", got, err)
	}
}

func TestCheckSearches(t *testing.T) {
	many := make([]string, 30)
	for i := range many {
		many[i] = fmt.Sprintf("d%d.test", i)
	}
	long := strings.Repeat("a.", 127) // 254 characters
	for name, c := range map[string]struct {
		searches []string
		cluster  string
		want     string
	}{
		"fine": {many, "", ""},
		"too many for a cluster": {
			many, "cluster.local", "Resolv.conf file '/r' contains search line consisting of more than 29 domains!",
		},
		"one is too long": {
			[]string{long}, "", `Resolv.conf file "/r" contains a search path which length is more than allowed 253 chars!`,
		},
		"too long together": {
			slices.Repeat([]string{long[:250]}, 9), "",
			"Resolv.conf file '/r' contains search line which length is more than allowed 2048 chars!",
		},
	} {
		got := ""
		for _, w := range CheckSearches("/r", c.searches, c.cluster) {
			got += w.Message
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
