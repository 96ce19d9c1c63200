package generate

import (
	"math"
	"testing"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berthd/berth/cri"
)

// securityPod sets the security contexts of the pod and of its container.
func securityPod(pod *v1.PodSecurityContext, container *v1.SecurityContext) func(*v1.Pod) {
	return func(p *v1.Pod) { p.Spec.SecurityContext, p.Spec.Containers[0].SecurityContext = pod, container }
}

func wantSecurity(edit func(*runtimeapi.LinuxContainerSecurityContext)) func(*runtimeapi.ContainerConfig) {
	return func(c *runtimeapi.ContainerConfig) { edit(c.Linux.SecurityContext) }
}

func TestSecurityContext(t *testing.T) {
	runContainerTests(t, map[string]containerTest{
		"empty": {pod: securityPod(&v1.PodSecurityContext{}, &v1.SecurityContext{})},
		"the container's own": {
			pod: securityPod(
				&v1.PodSecurityContext{
					RunAsUser:      ptr(int64(1)),
					RunAsGroup:     ptr(int64(1)),
					SELinuxOptions: &v1.SELinuxOptions{Type: "pod", Level: "s1"},
				},
				&v1.SecurityContext{
					RunAsUser:                ptr(int64(11)),
					RunAsGroup:               ptr(int64(12)),
					Privileged:               ptr(true),
					ReadOnlyRootFilesystem:   ptr(true),
					AllowPrivilegeEscalation: ptr(false),
					SELinuxOptions:           &v1.SELinuxOptions{Type: "own"},
					Capabilities: &v1.Capabilities{
						Add: []v1.Capability{"NET_ADMIN"}, Drop: []v1.Capability{"ALL", "CHOWN"},
					},
				},
			),
			want: wantSecurity(func(s *runtimeapi.LinuxContainerSecurityContext) {
				s.RunAsUser, s.RunAsGroup = &runtimeapi.Int64Value{Value: 11}, &runtimeapi.Int64Value{Value: 12}
				s.Privileged, s.ReadonlyRootfs, s.NoNewPrivs = true, true, true
				s.SelinuxOptions = &runtimeapi.SELinuxOption{Type: "own"}
				s.Capabilities = &runtimeapi.Capability{
					AddCapabilities: []string{"NET_ADMIN"}, DropCapabilities: []string{"ALL", "CHOWN"},
				}
			}),
		},
		"the pod's": {
			pod: securityPod(&v1.PodSecurityContext{
				RunAsUser:                ptr(int64(0)),
				RunAsGroup:               ptr(int64(2)),
				FSGroup:                  ptr(int64(3)),
				SupplementalGroups:       []int64{5, 6},
				SupplementalGroupsPolicy: ptr(v1.SupplementalGroupsPolicyStrict),
				SELinuxOptions:           &v1.SELinuxOptions{User: "u", Role: "r", Type: "t", Level: "l"},
			}, nil),
			in: func(in *ContainerInput) { in.VolumeGroups = []int64{4} },
			want: wantSecurity(func(s *runtimeapi.LinuxContainerSecurityContext) {
				s.RunAsUser, s.RunAsGroup = &runtimeapi.Int64Value{Value: 0}, &runtimeapi.Int64Value{Value: 2}
				s.SupplementalGroups, s.SupplementalGroupsPolicy = []int64{3, 4, 5, 6},
					runtimeapi.SupplementalGroupsPolicy_Strict
				s.SelinuxOptions = &runtimeapi.SELinuxOption{User: "u", Role: "r", Type: "t", Level: "l"}
			}),
		},
		"privilege escalation allowed": {
			pod: securityPod(nil, &v1.SecurityContext{AllowPrivilegeEscalation: ptr(true), Privileged: ptr(false)}),
		},
		"host namespaces": {
			pod: func(p *v1.Pod) { p.Spec.HostNetwork, p.Spec.HostPID, p.Spec.HostIPC = true, true, true },
			want: wantSecurity(func(s *runtimeapi.LinuxContainerSecurityContext) {
				o := s.NamespaceOptions
				o.Network, o.Pid, o.Ipc = runtimeapi.NamespaceMode_NODE, runtimeapi.NamespaceMode_NODE,
					runtimeapi.NamespaceMode_NODE
			}),
		},
		"more masked paths": {
			in: func(in *ContainerInput) { in.Node.MaskedPaths = []string{"/sys/x"} },
			want: wantSecurity(func(s *runtimeapi.LinuxContainerSecurityContext) {
				s.MaskedPaths = append(s.MaskedPaths, "/sys/x")
			}),
		},
		"default proc mount": {pod: securityPod(nil, &v1.SecurityContext{ProcMount: ptr(v1.DefaultProcMount)})},
		"unmasked proc mount": {
			pod: func(p *v1.Pod) {
				p.Spec.HostUsers = ptr(false)
				p.Spec.Containers[0].SecurityContext = &v1.SecurityContext{ProcMount: ptr(v1.UnmaskedProcMount)}
			},
			in: func(in *ContainerInput) {
				in.UserNamespace, in.Node.MaskedPaths = userNamespace(), []string{"/sys/x"}
			},
			want: wantSecurity(func(s *runtimeapi.LinuxContainerSecurityContext) {
				s.MaskedPaths, s.ReadonlyPaths, s.NamespaceOptions.UsernsOptions = nil, nil, userNamespace()
			}),
		},
		"unmasked proc mount as the host's users": {
			pod: securityPod(nil, &v1.SecurityContext{ProcMount: ptr(v1.UnmaskedProcMount)}),
			err: "procMount Unmasked needs `spec.hostUsers: false`",
		},
		"unknown proc mount": {
			pod: securityPod(nil, &v1.SecurityContext{ProcMount: ptr(v1.ProcMountType("x"))}),
			err: `unknown procMount "x"`,
		},
		"own users, none given": {
			pod: func(p *v1.Pod) { p.Spec.HostUsers = ptr(false) }, err: "can't set `spec.hostUsers: false`",
		},
		"big group": {
			pod: securityPod(nil, &v1.SecurityContext{RunAsGroup: ptr(int64(1 << 31))}),
			err: "runAsGroup 2147483648 is not valid",
		},
		"bad fsGroup": {
			pod: securityPod(&v1.PodSecurityContext{FSGroup: ptr(int64(-2))}, nil), err: "group -2 is not valid",
		},
		"strict groups not supported": {
			pod: securityPod(&v1.PodSecurityContext{SupplementalGroupsPolicy: ptr(v1.SupplementalGroupsPolicyStrict)},
				nil),
			in:  func(in *ContainerInput) { in.Node.Features.SupplementalGroupsPolicy = false },
			err: "supplementalGroupsPolicy: Strict",
		},
	})
}

func TestUsers(t *testing.T) {
	id := func(n int64) cri.Image { return cri.Image{UID: &n} }
	named := func(name string) cri.Image { return cri.Image{Username: name} }
	nonRoot := &v1.PodSecurityContext{RunAsNonRoot: ptr(true)}
	const where = `(pod: "web_shop(u-1)", container: main)`
	tests := map[string]struct {
		pod   *v1.PodSecurityContext
		own   *v1.SecurityContext
		image cri.Image
		uid   int64
		name  string
		err   string
	}{
		"image without a user is root": {uid: 0},
		"image's number":               {image: id(1000), uid: 1000},
		"image's name":                 {image: named("www"), name: "www"},
		"largest number":               {image: id(math.MaxInt32), uid: math.MaxInt32},
		"own before the image's name": {
			own: &v1.SecurityContext{RunAsUser: ptr(int64(5))}, image: named("www"), uid: 5,
		},
		"own root": {own: &v1.SecurityContext{RunAsUser: ptr(int64(0))}, image: id(5), uid: 0},
		"own before the pod's": {
			pod: &v1.PodSecurityContext{RunAsUser: ptr(int64(6))}, own: &v1.SecurityContext{RunAsUser: ptr(int64(5))},
			uid: 5,
		},
		"the pod's": {pod: &v1.PodSecurityContext{RunAsUser: ptr(int64(6))}, image: id(5), uid: 6},
		"own user over the image's bad": {
			own: &v1.SecurityContext{RunAsUser: ptr(int64(5))}, image: id(1 << 32), uid: 5,
		},
		"non-root number": {pod: nonRoot, image: id(1000), uid: 1000},
		"non-root, own number": {
			pod: nonRoot, own: &v1.SecurityContext{RunAsUser: ptr(int64(5))}, image: named("www"), uid: 5,
		},
		"root allowed by the container": {pod: nonRoot, own: &v1.SecurityContext{RunAsNonRoot: ptr(false)}, uid: 0},

		"non-root, own root": {
			pod: nonRoot, own: &v1.SecurityContext{RunAsUser: ptr(int64(0))},
			err: "container's runAsUser breaks non-root policy " + where,
		},
		"non-root, the pod's root": {
			pod: &v1.PodSecurityContext{RunAsNonRoot: ptr(true), RunAsUser: ptr(int64(0))}, image: id(5),
			err: "container's runAsUser breaks non-root policy " + where,
		},
		"non-root, image's root": {
			pod: nonRoot, image: id(0), err: "container has runAsNonRoot and image will run as root " + where,
		},
		"non-root, no user": {pod: nonRoot, err: "container has runAsNonRoot and image will run as root " + where},
		"non-root, name": {
			pod: nonRoot, image: named("www"),
			err: "container has runAsNonRoot and image has non-numeric user (www), cannot verify user is non-root " +
				where,
		},
		"non-root, a name like a number": {
			own:   &v1.SecurityContext{RunAsNonRoot: ptr(true)},
			image: named("4294967296"),
			err:   "image has non-numeric user (4294967296)",
		},
		"non-root, 2^32": {
			pod:   nonRoot,
			image: id(1 << 32),
			err:   "container has runAsNonRoot and image has an invalid user id (4294967296). (Must be 1-(2147483647))",
		},
		"2^31":     {image: id(1 << 31), err: "image has an invalid user id (2147483648)"},
		"2^32":     {image: id(1 << 32), err: "image has an invalid user id (4294967296)"},
		"negative": {image: id(-1), err: "image has an invalid user id (-1)"},
		"a name of digits only": {
			image: named("99999999999999999999"), err: "image has an invalid user id (99999999999999999999)",
		},
		"own 2^32": {
			own: &v1.SecurityContext{RunAsUser: ptr(int64(1 << 32))}, err: "runAsUser 4294967296 is not valid",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			in := containerInput(testPod(securityPod(tc.pod, tc.own)))
			in.Image = tc.image
			got, err := Container(in)
			wantError(t, err, ReasonContainer, tc.err)
			if err != nil {
				return
			}
			security := got.Linux.SecurityContext
			switch {
			case tc.name != "" && (security.RunAsUsername != tc.name || security.RunAsUser != nil):
				t.Errorf("user = %v %q, want %q", security.RunAsUser, security.RunAsUsername, tc.name)
			case tc.name == "" &&
				(security.RunAsUser.GetValue() != tc.uid || security.RunAsUser == nil || security.RunAsUsername != ""):
				t.Errorf("user = %v %q, want %d", security.RunAsUser, security.RunAsUsername, tc.uid)
			}
		})
	}
}

func TestSeccomp(t *testing.T) {
	profile := func(kind v1.SeccompProfileType, path *string) *v1.SeccompProfile {
		return &v1.SeccompProfile{Type: kind, LocalhostProfile: path}
	}
	const (
		runtimeDefault = runtimeapi.SecurityProfile_RuntimeDefault
		unconfined     = runtimeapi.SecurityProfile_Unconfined
		localhost      = runtimeapi.SecurityProfile_Localhost
	)
	tests := map[string]struct {
		pod, own *v1.SeccompProfile
		byNode   bool
		noRoot   bool
		want     runtimeapi.SecurityProfile_ProfileType
		ref, err string
	}{
		"none":               {want: unconfined},
		"the node's default": {byNode: true, want: runtimeDefault},
		"the pod's":          {pod: profile(v1.SeccompProfileTypeRuntimeDefault, nil), want: runtimeDefault},
		"own before the pod's": {
			pod: profile(v1.SeccompProfileTypeRuntimeDefault, nil),
			own: profile(v1.SeccompProfileTypeUnconfined, nil), want: unconfined,
		},
		"own before the node's": {byNode: true, own: profile(v1.SeccompProfileTypeUnconfined, nil), want: unconfined},
		"localhost": {
			own: profile(v1.SeccompProfileTypeLocalhost, ptr("dir/p.json")), want: localhost,
			ref: "/root/seccomp/dir/p.json",
		},
		"the pod's localhost": {
			pod: profile(v1.SeccompProfileTypeLocalhost, ptr("p.json")), want: localhost, ref: "/root/seccomp/p.json",
		},
		"localhost without path": {
			own: profile(v1.SeccompProfileTypeLocalhost, nil),
			err: "localhostProfile must be set if seccompProfile type is Localhost.",
		},
		"localhost, empty path": {
			own: profile(v1.SeccompProfileTypeLocalhost, ptr("")), err: "localhostProfile must be set",
		},
		"localhost, dot": {
			own: profile(v1.SeccompProfileTypeLocalhost, ptr("./")), err: "must be a relative path",
		},
		"localhost, absolute": {
			own: profile(v1.SeccompProfileTypeLocalhost, ptr("/etc/p")), err: "must be a relative path",
		},
		"localhost, going up": {
			own: profile(v1.SeccompProfileTypeLocalhost, ptr("a/../../p")), err: "must be a relative path",
		},
		"localhost, without root": {
			own: profile(v1.SeccompProfileTypeLocalhost, ptr("p")), noRoot: true, err: "not supported on this node",
		},
		"unknown": {
			own: profile("Custom", nil), byNode: true, err: `unknown seccomp profile type: "Custom"`,
		},
		"no type": {pod: profile("", nil), err: "unknown seccomp profile type"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			in := containerInput(testPod(securityPod(&v1.PodSecurityContext{SeccompProfile: tc.pod},
				&v1.SecurityContext{SeccompProfile: tc.own})))
			in.Node.SeccompDefault = tc.byNode
			if tc.noRoot {
				in.Node.SeccompRoot = ""
			}
			got, err := Container(in)
			wantError(t, err, ReasonContainer, tc.err)
			if profile := got.GetLinux().GetSecurityContext().GetSeccomp(); err == nil &&
				(profile.ProfileType != tc.want || profile.LocalhostRef != tc.ref) {
				t.Errorf("profile = %v, want %v %q", profile, tc.want, tc.ref)
			}
		})
	}
}

func TestAppArmor(t *testing.T) {
	profile := func(kind v1.AppArmorProfileType, name *string) *v1.AppArmorProfile {
		return &v1.AppArmorProfile{Type: kind, LocalhostProfile: name}
	}
	tests := map[string]struct {
		pod, own   *v1.AppArmorProfile
		annotation string
		off        bool
		want       string
		err        string
	}{
		"none":               {},
		"none, not enforced": {off: true},
		"runtime's": {
			pod: profile(v1.AppArmorProfileTypeRuntimeDefault, nil), want: "runtime/default",
		},
		"unconfined": {own: profile(v1.AppArmorProfileTypeUnconfined, nil), want: "unconfined"},
		"unconfined, not enforced": {
			own: profile(v1.AppArmorProfileTypeUnconfined, nil), off: true, want: "unconfined",
		},
		"localhost": {
			own: profile(v1.AppArmorProfileTypeLocalhost, ptr("p")), want: "localhost/p",
		},
		"own before annotation": {
			own: profile(v1.AppArmorProfileTypeLocalhost, ptr("p")), annotation: "unconfined",
			want: "localhost/p",
		},
		"annotation before the pod's": {
			pod: profile(v1.AppArmorProfileTypeLocalhost, ptr("p")), annotation: "localhost/q",
			want: "localhost/q",
		},
		"annotation, runtime's":     {annotation: "runtime/default", want: "runtime/default"},
		"annotation, unconfined":    {annotation: "unconfined", want: "unconfined"},
		"annotation, unknown":       {annotation: "x", err: "invalid AppArmor profile in annotation"},
		"annotation without a name": {annotation: "localhost/", err: "missing localhost apparmor profile name"},
		"localhost without a name": {
			own: profile(v1.AppArmorProfileTypeLocalhost, nil), err: "missing localhost apparmor profile name",
		},
		"localhost of spaces": {
			own: profile(v1.AppArmorProfileTypeLocalhost, ptr(" ")), err: "missing localhost apparmor profile name",
		},
		"unknown": {own: profile("x", nil), err: `unknown apparmor profile type: "x"`},
		"localhost, not enforced": {
			own: profile(v1.AppArmorProfileTypeLocalhost, ptr("p")), off: true, err: "Cannot enforce AppArmor",
		},
		"runtime's, not enforced": {
			pod: profile(v1.AppArmorProfileTypeRuntimeDefault, nil), off: true, err: "Cannot enforce AppArmor",
		},
		"annotation, not enforced": {annotation: "runtime/default", off: true, err: "Cannot enforce AppArmor"},
		"the pod's, own is unconfined": {
			pod: profile(v1.AppArmorProfileTypeLocalhost, ptr("p")),
			own: profile(v1.AppArmorProfileTypeUnconfined, nil), want: "unconfined",
		},
		"unknown, although not enforced": {own: profile("x", nil), off: true, err: "Cannot enforce AppArmor"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			pod := testPod(securityPod(&v1.PodSecurityContext{AppArmorProfile: tc.pod},
				&v1.SecurityContext{AppArmorProfile: tc.own}))
			if tc.annotation != "" {
				pod.Annotations["container.apparmor.security.beta.kubernetes.io/main"] = tc.annotation
			}
			in := containerInput(pod)
			in.Node.Features.AppArmor = !tc.off
			got, err := Container(in)
			wantError(t, err, ReasonContainer, tc.err)
			if err != nil {
				return
			}
			security := got.Linux.SecurityContext
			if old := security.ApparmorProfile; old != tc.want { //nolint:staticcheck // older runtimes read only this field
				t.Errorf("old notation = %q, want %q", old, tc.want)
			}
			var text string
			if p := security.Apparmor; p != nil {
				text = map[runtimeapi.SecurityProfile_ProfileType]string{
					runtimeapi.SecurityProfile_RuntimeDefault: "runtime/default",
					runtimeapi.SecurityProfile_Unconfined:     "unconfined",
					runtimeapi.SecurityProfile_Localhost:      "localhost/" + p.LocalhostRef,
				}[p.ProfileType]
			}
			if text != tc.want {
				t.Errorf("profile = %q, want %q", text, tc.want)
			}
		})
	}
}
