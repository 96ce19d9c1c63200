package generate

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
	v1 "k8s.io/api/core/v1"
	utilsysctl "k8s.io/component-helpers/node/util/sysctl"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func testNode() Node {
	return Node{
		PodLogsDir: "/logs", SeccompRoot: "/root/seccomp", RuntimeAnnotations: []string{"example.com/*", "note"},
		DNS:      NodeDNS{Resolv: &ResolvConf{Nameservers: []string{"192.0.2.53"}}, ClusterDomain: "c"},
		Features: Features{AppArmor: true, SELinux: true, SupplementalGroupsPolicy: true, RecursiveReadOnly: true},
	}
}

// userNamespace is the id mapping of a pod with a user namespace of its own.
func userNamespace() *runtimeapi.UserNamespace {
	ids := []*runtimeapi.IDMapping{{HostId: 65536, ContainerId: 0, Length: 65536}}
	return &runtimeapi.UserNamespace{Mode: runtimeapi.NamespaceMode_POD, Uids: ids, Gids: ids}
}

// baseSandbox is the config of testPod, changed by the edits.
func baseSandbox(edits ...func(*runtimeapi.PodSandboxConfig)) *runtimeapi.PodSandboxConfig {
	config := &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{Name: "web", Namespace: "shop", Uid: "u-1", Attempt: 3},
		Hostname: "web", LogDirectory: "/logs/shop_web_u-1",
		DnsConfig: &runtimeapi.DNSConfig{Servers: []string{"192.0.2.53"}},
		Labels: map[string]string{
			"app": "web", "tier": "front",
			"io.kubernetes.pod.name": "web", "io.kubernetes.pod.namespace": "shop", "io.kubernetes.pod.uid": "u-1",
		},
		Annotations: map[string]string{"note": "hello", "example.com/Team": "a\"b"},
		Linux: &runtimeapi.LinuxPodSandboxConfig{
			CgroupParent: "/kubepods/podu-1",
			Resources:    &runtimeapi.LinuxContainerResources{CpuShares: 2},
			Overhead:     &runtimeapi.LinuxContainerResources{CpuShares: 3},
			SecurityContext: &runtimeapi.LinuxSandboxSecurityContext{
				Seccomp: &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_RuntimeDefault},
				NamespaceOptions: &runtimeapi.NamespaceOption{
					Pid:           runtimeapi.NamespaceMode_CONTAINER,
					UsernsOptions: &runtimeapi.UserNamespace{Mode: runtimeapi.NamespaceMode_NODE},
				},
			},
		},
	}
	for _, edit := range edits {
		edit(config)
	}
	return config
}

func TestSandbox(t *testing.T) {
	security := func(edit func(*runtimeapi.LinuxSandboxSecurityContext)) func(*runtimeapi.PodSandboxConfig) {
		return func(c *runtimeapi.PodSandboxConfig) { edit(c.Linux.SecurityContext) }
	}
	namespace := func(edit func(*runtimeapi.NamespaceOption)) func(*runtimeapi.PodSandboxConfig) {
		return func(c *runtimeapi.PodSandboxConfig) { edit(c.Linux.SecurityContext.NamespaceOptions) }
	}
	podSecurity := func(sc v1.PodSecurityContext) func(*v1.Pod) {
		return func(p *v1.Pod) { p.Spec.SecurityContext = &sc }
	}
	tests := map[string]struct {
		pod  func(*v1.Pod)
		in   func(*SandboxInput)
		want func(*runtimeapi.PodSandboxConfig)
		err  string
	}{
		"plain": {},
		"host namespaces": {
			pod: func(p *v1.Pod) { p.Spec.HostNetwork, p.Spec.HostPID, p.Spec.HostIPC = true, true, true },
			want: func(c *runtimeapi.PodSandboxConfig) {
				c.Hostname = ""
				o := c.Linux.SecurityContext.NamespaceOptions
				o.Network, o.Pid, o.Ipc = runtimeapi.NamespaceMode_NODE, runtimeapi.NamespaceMode_NODE,
					runtimeapi.NamespaceMode_NODE
			},
		},
		"shared processes": {
			pod:  func(p *v1.Pod) { p.Spec.ShareProcessNamespace = ptr(true) },
			want: namespace(func(o *runtimeapi.NamespaceOption) { o.Pid = runtimeapi.NamespaceMode_POD }),
		},
		"processes not shared": {pod: func(p *v1.Pod) { p.Spec.ShareProcessNamespace = ptr(false) }},
		"host users":           {pod: func(p *v1.Pod) { p.Spec.HostUsers = ptr(true) }},
		"own users": {
			pod:  func(p *v1.Pod) { p.Spec.HostUsers = ptr(false) },
			in:   func(in *SandboxInput) { in.UserNamespace = userNamespace() },
			want: namespace(func(o *runtimeapi.NamespaceOption) { o.UsernsOptions = userNamespace() }),
		},
		"own users, none given": {
			pod: func(p *v1.Pod) { p.Spec.HostUsers = ptr(false) }, err: "can't set `spec.hostUsers: false`",
		},
		"own users, host's given": {
			pod: func(p *v1.Pod) { p.Spec.HostUsers = ptr(false) },
			in: func(in *SandboxInput) {
				in.UserNamespace = &runtimeapi.UserNamespace{Mode: runtimeapi.NamespaceMode_NODE}
			},
			err: "can't set `spec.hostUsers: false`",
		},
		"users and groups": {
			pod: podSecurity(v1.PodSecurityContext{
				RunAsUser:                ptr(int64(1)),
				RunAsGroup:               ptr(int64(2)),
				FSGroup:                  ptr(int64(3)),
				SupplementalGroups:       []int64{5},
				SupplementalGroupsPolicy: ptr(v1.SupplementalGroupsPolicyStrict),
			}),
			in: func(in *SandboxInput) { in.VolumeGroups = []int64{4} },
			want: security(func(s *runtimeapi.LinuxSandboxSecurityContext) {
				s.RunAsUser, s.RunAsGroup = &runtimeapi.Int64Value{Value: 1}, &runtimeapi.Int64Value{Value: 2}
				s.SupplementalGroups = []int64{3, 4, 5}
				s.SupplementalGroupsPolicy = runtimeapi.SupplementalGroupsPolicy_Strict
			}),
		},
		"a group without a user": {pod: podSecurity(v1.PodSecurityContext{RunAsGroup: ptr(int64(2))})},
		"seccomp stays the runtime's, SELinux goes on": {
			pod: podSecurity(v1.PodSecurityContext{
				SeccompProfile: &v1.SeccompProfile{Type: v1.SeccompProfileTypeUnconfined},
				SELinuxOptions: &v1.SELinuxOptions{User: "u", Role: "r", Type: "t", Level: "s0"},
			}),
			want: security(func(s *runtimeapi.LinuxSandboxSecurityContext) {
				s.SelinuxOptions = &runtimeapi.SELinuxOption{User: "u", Role: "r", Type: "t", Level: "s0"}
			}),
		},
		"privileged container": {
			pod: func(p *v1.Pod) {
				p.Spec.Containers = append(p.Spec.Containers,
					v1.Container{SecurityContext: &v1.SecurityContext{Privileged: ptr(true)}})
			},
			want: security(func(s *runtimeapi.LinuxSandboxSecurityContext) { s.Privileged = true }),
		},
		"privileged init container": {
			pod: func(p *v1.Pod) {
				p.Spec.InitContainers = []v1.Container{{SecurityContext: &v1.SecurityContext{Privileged: ptr(true)}}}
			},
			want: security(func(s *runtimeapi.LinuxSandboxSecurityContext) { s.Privileged = true }),
		},
		"privileged ephemeral container": {
			pod: func(p *v1.Pod) {
				p.Spec.EphemeralContainers = []v1.EphemeralContainer{{EphemeralContainerCommon: v1.EphemeralContainerCommon{
					SecurityContext: &v1.SecurityContext{Privileged: ptr(true)},
				}}}
			},
			want: security(func(s *runtimeapi.LinuxSandboxSecurityContext) { s.Privileged = true }),
		},
		"sysctls": {
			pod: podSecurity(v1.PodSecurityContext{Sysctls: []v1.Sysctl{
				{Name: "net.ipv4.tcp_rmem", Value: "4096 87380\t6291456"}, {Name: "kernel/shm_rmid_forced", Value: "1"},
			}}),
			want: func(c *runtimeapi.PodSandboxConfig) {
				c.Linux.Sysctls = map[string]string{
					"net.ipv4.tcp_rmem": "4096 87380\t6291456", "kernel.shm_rmid_forced": "1",
				}
			},
		},
		"host ports": {
			pod: func(p *v1.Pod) {
				p.Spec.InitContainers = []v1.Container{
					{Name: "once", Ports: []v1.ContainerPort{{ContainerPort: 1, HostPort: 1}}},
					{
						Name: "side", RestartPolicy: ptr(v1.ContainerRestartPolicyAlways),
						Ports: []v1.ContainerPort{{ContainerPort: 9, HostPort: 9}},
					},
				}
				p.Spec.Containers[0].Ports = []v1.ContainerPort{
					{ContainerPort: 80, HostPort: 8080, HostIP: "127.0.0.1"},
					{ContainerPort: 80, HostPort: 8080, HostIP: "::1"},
					{ContainerPort: 80, HostPort: 8080, HostIP: "127.0.0.1", Name: "again"},
					{ContainerPort: 53, HostPort: 53, Protocol: v1.ProtocolUDP},
					{ContainerPort: 53, HostPort: 53, Protocol: v1.ProtocolSCTP},
					{ContainerPort: 443},
				}
			},
			want: func(c *runtimeapi.PodSandboxConfig) {
				c.PortMappings = []*runtimeapi.PortMapping{
					{ContainerPort: 9, HostPort: 9},
					{ContainerPort: 80, HostPort: 8080, HostIp: "127.0.0.1"},
					{ContainerPort: 80, HostPort: 8080, HostIp: "::1"},
					{ContainerPort: 53, HostPort: 53, Protocol: runtimeapi.Protocol_UDP},
					{ContainerPort: 53, HostPort: 53, Protocol: runtimeapi.Protocol_SCTP},
				}
			},
		},
		"host ports on the host's network": {
			pod: func(p *v1.Pod) {
				p.Spec.HostNetwork = true
				p.Spec.Containers[0].Ports = []v1.ContainerPort{{ContainerPort: 80, HostPort: 80}}
			},
			want: func(c *runtimeapi.PodSandboxConfig) {
				c.Hostname = ""
				c.Linux.SecurityContext.NamespaceOptions.Network = runtimeapi.NamespaceMode_NODE
			},
		},
		"full host name": {
			pod:  func(p *v1.Pod) { p.Spec.Subdomain, p.Spec.SetHostnameAsFQDN = "sub", ptr(true) },
			want: func(c *runtimeapi.PodSandboxConfig) { c.Hostname = "web.sub.shop.svc.c" },
		},

		"unknown protocol": {
			pod: func(p *v1.Pod) {
				p.Spec.Containers[0].Ports = []v1.ContainerPort{{ContainerPort: 1, HostPort: 1, Protocol: "ICMP"}}
			},
			err: `port 1 of container "main": unknown protocol "ICMP"`,
		},
		"bad hostname": {pod: func(p *v1.Pod) { p.Spec.Hostname = "a_b" }, err: "not a valid DNS label"},
		"bad sysctl": {
			pod: podSecurity(v1.PodSecurityContext{Sysctls: []v1.Sysctl{{Name: "kernel.hostname", Value: "x"}}}),
			err: "not known to be namespaced",
		},
		"big user": {
			pod: podSecurity(v1.PodSecurityContext{RunAsUser: ptr(int64(1 << 31))}),
			err: "runAsUser 2147483648 is not valid",
		},
		"big group": {
			pod: podSecurity(v1.PodSecurityContext{RunAsGroup: ptr(int64(1 << 32))}),
			err: "runAsGroup 4294967296 is not valid",
		},
		"negative group": {
			pod: podSecurity(v1.PodSecurityContext{SupplementalGroups: []int64{-1}}), err: "group -1 is not valid",
		},
		"strict groups not supported": {
			pod: podSecurity(v1.PodSecurityContext{SupplementalGroupsPolicy: ptr(v1.SupplementalGroupsPolicyStrict)}),
			in:  func(in *SandboxInput) { in.Node.Features = Features{} },
			err: "supplementalGroupsPolicy: Strict is not supported",
		},
		"merged groups are always supported": {
			pod: podSecurity(v1.PodSecurityContext{SupplementalGroupsPolicy: ptr(v1.SupplementalGroupsPolicyMerge)}),
			in:  func(in *SandboxInput) { in.Node.Features = Features{} },
		},
		"unknown groups policy": {
			pod: podSecurity(v1.PodSecurityContext{SupplementalGroupsPolicy: ptr(v1.SupplementalGroupsPolicy("None"))}),
			err: "unsupported supplementalGroupsPolicy: None",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if tc.pod == nil {
				tc.pod = func(*v1.Pod) {}
			}
			if tc.want == nil {
				tc.want = func(*runtimeapi.PodSandboxConfig) {}
			}
			in := SandboxInput{
				Pod:          testPod(tc.pod),
				Node:         testNode(),
				Attempt:      3,
				CgroupParent: "/kubepods/podu-1",
				Resources:    &runtimeapi.LinuxContainerResources{CpuShares: 2},
				Overhead:     &runtimeapi.LinuxContainerResources{CpuShares: 3},
			}
			if tc.in != nil {
				tc.in(&in)
			}
			before := in.Pod.DeepCopy()
			got, err := Sandbox(in)
			wantError(t, err, ReasonSandbox, tc.err)
			if err == nil {
				if diff := cmp.Diff(baseSandbox(tc.want), got, protocmp.Transform()); diff != "" {
					t.Error(diff)
				}
			}
			if diff := cmp.Diff(before, in.Pod); diff != "" {
				t.Errorf("the pod was changed: %s", diff)
			}
		})
	}
}

func TestSysctls(t *testing.T) {
	tests := map[string]struct {
		name, value string
		spec        v1.PodSpec
		err         string
	}{
		"safe one":            {name: "kernel.shm_rmid_forced", value: "1"},
		"range":               {name: "net.ipv4.ip_local_port_range", value: "1024 65535"},
		"list":                {name: "net.ipv4.ip_local_reserved_ports", value: "8080,9000-9100"},
		"negative":            {name: "net.ipv4.tcp_notsent_lowat", value: "-1"},
		"word":                {name: "net.ipv4.tcp_congestion_control", value: "bbr"},
		"empty value":         {name: "net.ipv4.ip_local_reserved_ports"},
		"dot in an interface": {name: "net.ipv4.conf.eno2/100.rp_filter", value: "1"},
		"slashes":             {name: "net/ipv4/conf/eno2.100/rp_filter", value: "1"},
		"message queues":      {name: "fs.mqueue.msg_max", value: "10"},
		"semaphores":          {name: "kernel.sem", value: "1 2 3 4"},
		"CVE-2022-0811": {
			name: "kernel.shm_rmid_forced", value: "1+kernel.core_pattern=|/x",
			err: `value of sysctl "kernel.shm_rmid_forced" is not valid`,
		},
		"equals sign":          {name: "net.a", value: "1=2", err: "is not valid"},
		"newline in the value": {name: "net.a", value: "1\n2", err: "is not valid"},
		"trailing newline":     {name: "net.a", value: "1\n", err: "is not valid"},
		"NUL":                  {name: "net.a", value: "1\x00", err: "is not valid"},
		"long value":           {name: "net.a", value: string(make([]byte, 4097)), err: "is not valid"},
		"newline in the name":  {name: "net.a\n", value: "1", err: "sysctl name"},
		"parent directory":     {name: "net/../kernel/core_pattern", value: "1", err: "sysctl name"},
		"dots":                 {name: "net...a", value: "1", err: "sysctl name"},
		"capitals":             {name: "net.A", value: "1", err: "sysctl name"},
		"no name":              {value: "1", err: "sysctl name"},
		"of the node":          {name: "vm.swappiness", value: "1", err: "not known to be namespaced"},
		"of the node, slashes": {name: "kernel/core_pattern", value: "x", err: "not known to be namespaced"},
		"only net":             {name: "net", value: "1", err: "not known to be namespaced"},
		"prefix of a name":     {name: "kernel.shmmaximum", value: "1", err: "not known to be namespaced"},
		"host network": {
			name: "net.ipv4.ip_forward", value: "1", spec: v1.PodSpec{HostNetwork: true},
			err: "not allowed with host Net enabled",
		},
		"host network, slashes": {
			name: "net/ipv4/ip_forward", value: "1", spec: v1.PodSpec{HostNetwork: true},
			err: "not allowed with host Net enabled",
		},
		"host IPC": {
			name: "kernel.shmmax", value: "1", spec: v1.PodSpec{HostIPC: true},
			err: "not allowed with host IPC enabled",
		},
		"host IPC, net": {name: "net.a", value: "1", spec: v1.PodSpec{HostIPC: true}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			pod := testPod(func(p *v1.Pod) {
				p.Spec = tc.spec
				p.Spec.SecurityContext = &v1.PodSecurityContext{Sysctls: []v1.Sysctl{{Name: tc.name, Value: tc.value}}}
			})
			got, err := sysctls(pod)
			// the runtime gets names with dots
			checkText(t, got[utilsysctl.NormalizeName(tc.name)], err, tc.value, tc.err)
		})
	}
}
