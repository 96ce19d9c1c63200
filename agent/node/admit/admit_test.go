package admit

import (
	"fmt"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// pod makes a pod with host ports written like "80", "127.0.0.1:80", "[::1]:80/UDP". A port that
// begins with "sidecar " or "init " belongs to an init container.
func pod(ports ...string) *v1.Pod {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "other"}}
	always := v1.ContainerRestartPolicyAlways
	for _, text := range ports {
		c := v1.Container{}
		rest, isSidecar := strings.CutPrefix(text, "sidecar ")
		rest, isInit := strings.CutPrefix(rest, "init ")
		rest, protocol, _ := strings.Cut(rest, "/")
		port := v1.ContainerPort{ContainerPort: 1, Protocol: v1.Protocol(protocol)}
		if i := strings.LastIndex(rest, ":"); i >= 0 {
			port.HostIP, rest = strings.Trim(rest[:i], "[]"), rest[i+1:]
		}
		if _, err := fmt.Sscan(rest, &port.HostPort); err != nil {
			panic(err)
		}
		c.Ports = append(c.Ports, port)
		switch {
		case isSidecar:
			c.RestartPolicy = &always
			p.Spec.InitContainers = append(p.Spec.InitContainers, c)
		case isInit:
			p.Spec.InitContainers = append(p.Spec.InitContainers, c)
		default:
			p.Spec.Containers = append(p.Spec.Containers, c)
		}
	}
	return p
}

func TestPorts(t *testing.T) {
	for _, c := range []struct {
		mine, theirs string
		clash        bool
	}{
		{"80", "80", true},
		{"80", "81", false},
		{"80", "80/UDP", false},
		{"80/TCP", "80", true},
		{"80/UDP", "80/UDP", true},
		{"80/SCTP", "80/UDP", false},
		{"127.0.0.1:80", "80", true},
		{"80", "127.0.0.1:80", true},
		{"0.0.0.0:80", "127.0.0.1:80", true},
		{"127.0.0.1:80", "[::]:80", true},
		{"127.0.0.1:80", "127.0.0.1:80", true},
		{"127.0.0.1:80", "127.0.0.2:80", false},
		{"[::1]:80", "[0:0:0:0:0:0:0:1]:80", true},
		{"[::ffff:10.0.0.1]:80", "10.0.0.1:80", true},
		{"[::1]:80", "127.0.0.1:80", false},
		{"not-an-address:80", "not-an-address:80", true},
		{"0", "0", false},
		{"sidecar 80", "80", true},
		{"80", "sidecar 80", true},
		{"init 80", "80", false},
		{"80", "init 80", false},
	} {
		r := Check(Input{Pod: pod("9999", c.mine), Others: []*v1.Pod{pod(), pod("1", c.theirs)}})
		if (r != nil) != c.clash {
			t.Errorf("%s beside %s: %v", c.mine, c.theirs, r)
		}
		if r != nil &&
			(r.Reason != "NodePorts" ||
				r.Message != "Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports" ||
				!strings.Contains(r.Detail, "80 is taken by pod ns/other")) {
			t.Errorf("rejection %+v", r)
		}
	}
	if r := Check(Input{Pod: pod("80", "80")}); r != nil {
		t.Errorf("alone: %v", r)
	}
}

func TestOperatingSystem(t *testing.T) {
	label := func(m map[string]string) func(*v1.Pod) { return func(p *v1.Pod) { p.Labels = m } }
	field := func(os v1.OSName) func(*v1.Pod) { return func(p *v1.Pod) { p.Spec.OS = &v1.PodOS{Name: os} } }
	for name, c := range map[string]struct {
		change func(*v1.Pod)
		reason string
	}{
		"nothing said":  {func(*v1.Pod) {}, ""},
		"linux":         {field(v1.Linux), ""},
		"windows":       {field(v1.Windows), "PodOSNotSupported"},
		"label linux":   {label(map[string]string{v1.LabelOSStable: "linux"}), ""},
		"label windows": {label(map[string]string{v1.LabelOSStable: "windows"}), "PodOSSelectorNodeLabelDoesNotMatch"},
	} {
		p := pod()
		c.change(p)
		r := Check(Input{Pod: p})
		if got := ""; r != nil {
			got = r.Reason
			if got != c.reason || r.Message == "" {
				t.Errorf("%s: %+v", name, r)
			}
		} else if c.reason != got {
			t.Errorf("%s: admitted", name)
		}
	}
}

// TestOrder has a pod that breaks every rule: the first rule rejects it.
func TestOrder(t *testing.T) {
	strict := v1.SupplementalGroupsPolicyStrict
	p := pod("80")
	p.Labels = map[string]string{v1.LabelOSStable: "windows"}
	p.Spec.OS = &v1.PodOS{Name: v1.Windows}
	p.Spec.NodeSelector = p.Labels
	p.Spec.SecurityContext = &v1.PodSecurityContext{
		Sysctls:                  []v1.Sysctl{{Name: "kernel.msgmax", Value: "1"}},
		SupplementalGroupsPolicy: &strict,
		AppArmorProfile:          &v1.AppArmorProfile{Type: v1.AppArmorProfileTypeRuntimeDefault},
	}
	p.Spec.Volumes = []v1.Volume{{
		Name: "v", VolumeSource: v1.VolumeSource{Cinder: &v1.CinderVolumeSource{VolumeID: "x"}},
	}}
	in := Input{
		Pod:         p,
		Others:      []*v1.Pod{pod("80")},
		Allocatable: v1.ResourceList{v1.ResourcePods: resource.MustParse("1")},
		Node:        Node{Name: "node", NoStrictGroups: true, PodSecurity: "baseline"},
	}
	for _, undo := range []struct {
		reason string
		mend   func()
	}{
		{"PodSecurity", func() { in.Node.PodSecurity = "privileged" }},
		{"SysctlForbidden", func() { p.Spec.SecurityContext.Sysctls = nil }},
		{"PodOSSelectorNodeLabelDoesNotMatch", func() { p.Labels = nil }},
		{"PodOSNotSupported", func() { p.Spec.OS = nil }},
		{"SupplementalGroupsPolicyNotSupported", func() { in.Node.NoStrictGroups = false }},
		{"OutOfpods", func() { in.Allocatable[v1.ResourcePods] = resource.MustParse("2") }},
		{"NodeAffinity", func() { p.Spec.NodeSelector = nil }},
		{"NodePorts", func() { in.Others = nil }},
		{"AppArmor", func() { in.Node.AppArmor = true }},
		{"PodFeatureUnsupported", func() { p.Spec.Volumes = nil }},
	} {
		if r := Check(in); r == nil || r.Reason != undo.reason {
			t.Errorf("rejection %+v, want %s", r, undo.reason)
		}
		undo.mend()
	}
	if r := Check(in); r != nil {
		t.Errorf("rejection %+v", r)
	}
}

// A pod that does not get its devices is refused after the node's own reasons and before all
// amounts, as on a kubelet.
func TestDevicesThatAreMissing(t *testing.T) {
	devices := &Rejection{Reason: "UnexpectedAdmissionError"}
	in := Input{
		Pod: &v1.Pod{}, FromAPI: true, Unallocated: devices,
		Allocatable: v1.ResourceList{v1.ResourcePods: resource.MustParse("0")},
	}
	if r := Check(in); r != devices {
		t.Errorf("refused by %+v", r)
	}
	in.Node.ShuttingDown = true
	if r := Check(in); r != devices {
		t.Errorf("refused during a shutdown by %+v", r)
	}
}
