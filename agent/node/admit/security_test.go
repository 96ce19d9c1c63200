package admit

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
)

func TestSysctls(t *testing.T) {
	rules, err := NewSysctls("6.18.5-amd64", []string{
		"kernel.msg*", "net.core.somaxconn", "net/ipv4/conf/eth0.100/rp_filter",
	})
	if err != nil {
		t.Fatal(err)
	}
	old, err := NewSysctls("3.10.0-1160.el7.x86_64", nil)
	if err != nil {
		t.Fatal(err)
	}
	unknown, err := NewSysctls("unknown", nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		rules   Sysctls
		sysctl  string
		host    bool
		message string
	}{
		"safe":                {rules: rules, sysctl: "net.ipv4.ip_local_port_range"},
		"safe, with slashes":  {rules: rules, sysctl: "net/ipv4/tcp_rmem"},
		"allowed":             {rules: rules, sysctl: "net.core.somaxconn"},
		"allowed by a prefix": {rules: rules, sysctl: "kernel.msgmax"},
		"dots within a part":  {rules: rules, sysctl: "net.ipv4.conf.eth0/100.rp_filter"},
		"not allowed": {
			rules:   rules,
			sysctl:  "net.core.rmem_max",
			message: `forbidden sysctl: "net.core.rmem_max" not allowlisted`,
		},
		"of the whole node": {
			rules:   rules,
			sysctl:  "vm.swappiness",
			message: `forbidden sysctl: "vm.swappiness" not allowlisted`,
		},
		"no rules": {sysctl: "net.ipv4.tcp_syncookies", message: "not allowlisted"},
		"the node's network": {
			rules:   rules,
			sysctl:  "net.core.somaxconn",
			host:    true,
			message: `forbidden sysctl: "net.core.somaxconn" not allowed with host Net enabled`,
		},
		"the node's IPC": {
			rules:   rules,
			sysctl:  "kernel.shm_rmid_forced",
			host:    true,
			message: `"kernel.shm_rmid_forced" not allowed with host IPC enabled`,
		},
		"the node's, by a prefix": {
			rules:   rules,
			sysctl:  "kernel/msgmni",
			host:    true,
			message: `"kernel.msgmni" not allowed with host IPC enabled`,
		},
		"too old a kernel":         {rules: old, sysctl: "net.ipv4.tcp_rmem", message: "not allowlisted"},
		"old enough":               {rules: old, sysctl: "net.ipv4.tcp_syncookies"},
		"a kernel without version": {rules: unknown, sysctl: "net.ipv4.tcp_keepalive_time", message: "not allowlisted"},
	} {
		p := pod()
		p.Spec.HostNetwork, p.Spec.HostIPC = c.host, c.host
		p.Spec.SecurityContext = &v1.PodSecurityContext{Sysctls: []v1.Sysctl{
			{Name: "net.ipv4.tcp_syncookies", Value: "1"}, {Name: c.sysctl, Value: "1"},
		}}
		if c.host || c.message != "" {
			p.Spec.SecurityContext.Sysctls = p.Spec.SecurityContext.Sysctls[1:]
		}
		r := Check(Input{Pod: p, Node: Node{Sysctls: c.rules}})
		if (r != nil) != (c.message != "") ||
			r != nil && (r.Reason != "SysctlForbidden" || !strings.Contains(r.Message, c.message)) {
			t.Errorf("%s: %+v", name, r)
		}
	}
}

func TestSysctlPatterns(t *testing.T) {
	for pattern, message := range map[string]string{
		"vm.swappiness":                         `the sysctls "vm.swappiness" are not known to be namespaced`,
		"*":                                     "not known to be namespaced",
		"net.*\n":                               "must have at most",
		"net.ipv4.conf.*.rp_filter":             "must have at most",
		"":                                      "must have at most",
		"net." + strings.Repeat("x", maxSysctl): "must have at most",
	} {
		if _, err := NewSysctls("6.1", []string{pattern}); err == nil || !strings.Contains(err.Error(), message) {
			t.Errorf("%q: %v", pattern, err)
		}
	}
}

func TestSupplementalGroupsPolicy(t *testing.T) {
	for _, policy := range []v1.SupplementalGroupsPolicy{
		"", v1.SupplementalGroupsPolicyMerge, v1.SupplementalGroupsPolicyStrict,
	} {
		for _, none := range []bool{false, true} {
			p := pod()
			p.Spec.SecurityContext = &v1.PodSecurityContext{}
			if policy != "" {
				p.Spec.SecurityContext.SupplementalGroupsPolicy = &policy
			}
			r := Check(Input{Pod: p, Node: Node{NoStrictGroups: none}})
			if refused := none && policy == v1.SupplementalGroupsPolicyStrict; (r != nil) != refused {
				t.Errorf("%q where the runtime lacks it is %t: %+v", policy, none, r)
			}
			if r != nil &&
				(r.Reason != "SupplementalGroupsPolicyNotSupported" ||
					r.Message != "SupplementalGroupsPolicy=Strict is not supported in this node") {
				t.Errorf("%+v", r)
			}
		}
	}
}

func TestAppArmor(t *testing.T) {
	profile := func(kind v1.AppArmorProfileType, name string) *v1.AppArmorProfile {
		return &v1.AppArmorProfile{Type: kind, LocalhostProfile: &name}
	}
	const off = "Cannot enforce AppArmor: AppArmor is not enabled on the host"
	for name, c := range map[string]struct {
		shared, own, ephemeral *v1.AppArmorProfile
		annotation             string
		enforced               bool
		message                string
	}{
		"none": {},
		"unconfined": {
			shared: profile(v1.AppArmorProfileTypeUnconfined, ""), annotation: "unconfined",
		},
		"the pod's":                {shared: profile(v1.AppArmorProfileTypeRuntimeDefault, ""), message: off},
		"a container's":            {own: profile(v1.AppArmorProfileTypeLocalhost, "p"), message: off},
		"an ephemeral container's": {ephemeral: profile(v1.AppArmorProfileTypeRuntimeDefault, ""), message: off},
		"the annotation's":         {annotation: "runtime/default", message: off},
		"enforced": {
			enforced: true,
			shared:   profile(v1.AppArmorProfileTypeRuntimeDefault, ""),
			own:      profile(v1.AppArmorProfileTypeLocalhost, "p"),
		},
		"enforced, without a name": {
			enforced: true,
			own:      profile(v1.AppArmorProfileTypeLocalhost, " "),
			message:  "Cannot enforce AppArmor: invalid empty AppArmor profile name",
		},
		"enforced, annotation unnamed": {
			enforced:   true,
			annotation: "localhost/",
			message:    "Cannot enforce AppArmor: invalid empty AppArmor profile name",
		},
	} {
		p := pod("1")
		p.Spec.Containers[0].Name = "main"
		p.Spec.SecurityContext = &v1.PodSecurityContext{AppArmorProfile: c.shared}
		p.Spec.Containers[0].SecurityContext = &v1.SecurityContext{AppArmorProfile: c.own}
		if c.annotation != "" {
			p.Annotations = map[string]string{v1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix +
				"main": c.annotation}
		}
		if c.ephemeral != nil {
			p.Spec.EphemeralContainers = []v1.EphemeralContainer{{EphemeralContainerCommon: v1.EphemeralContainerCommon{
				Name: "debug", SecurityContext: &v1.SecurityContext{AppArmorProfile: c.ephemeral},
			}}}
		}
		r := Check(Input{Pod: p, Node: Node{AppArmor: c.enforced}})
		if (r != nil) != (c.message != "") ||
			r != nil && (r.Reason != "AppArmor" || !strings.Contains(r.Message, c.message)) {
			t.Errorf("%s: %+v", name, r)
		}
	}
}

func TestRefusedFields(t *testing.T) {
	p := pod()
	p.Spec.Volumes = []v1.Volume{
		{Name: "a", VolumeSource: v1.VolumeSource{Cinder: &v1.CinderVolumeSource{VolumeID: "x"}}},
		{Name: "b", VolumeSource: v1.VolumeSource{Flocker: &v1.FlockerVolumeSource{}}},
	}
	r := Check(Input{Pod: p})
	if r == nil || r.Reason != "PodFeatureUnsupported" ||
		!strings.Contains(r.Message, "spec.volumes[0].cinder is not supported: ") ||
		!strings.Contains(r.Message, "spec.volumes[1].flocker") {
		t.Errorf("%+v", r)
	}
	for range 100 {
		p.Spec.Volumes = append(p.Spec.Volumes, p.Spec.Volumes...)
		if len(p.Spec.Volumes) > 100 {
			break
		}
	}
	if r := Check(Input{Pod: p}); r == nil || len(r.Message) > 2*maxListed {
		t.Errorf("the message has %d bytes", len(r.Message))
	}
}
