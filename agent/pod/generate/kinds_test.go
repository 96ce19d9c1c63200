package generate

import (
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"sigs.k8s.io/yaml"
)

// TestKindsOfContainers sets the fields of ephemeral and init containers that need another machine
// to have an effect inside: what the runtime is told is the last thing that can be seen here.
func TestKindsOfContainers(t *testing.T) {
	var spec v1.PodSpec
	err := yaml.UnmarshalStrict([]byte(`
hostUsers: false
containers: [{name: main}]
initContainers:
  - name: first
    volumeDevices: [{name: raw, devicePath: /dev/raw}]
    lifecycle: {stopSignal: SIGUSR1}
    securityContext:
      procMount: Unmasked
      appArmorProfile: {type: Localhost, localhostProfile: p}
      seLinuxOptions: {user: u, role: r, type: t, level: l}
ephemeralContainers:
  - name: look
    volumeDevices: [{name: raw, devicePath: /dev/raw}]
    securityContext:
      procMount: Unmasked
      appArmorProfile: {type: Localhost, localhostProfile: p}
      seLinuxOptions: {user: u, role: r, type: t, level: l}
`), &spec)
	if err != nil {
		t.Fatal(err)
	}
	of := func(c *v1.Container) *runtimeapi.ContainerConfig {
		t.Helper()
		in := containerInput(testPod(func(p *v1.Pod) { p.Spec.HostUsers = spec.HostUsers }))
		in.Container, in.Node.Features.AppArmor, in.UserNamespace = c, true, userNamespace()
		in.Mounts.Volumes["raw"] = Volume{HostPath: "/at/raw", Device: true}
		got, err := Container(in)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	plain := of(&spec.Containers[0])
	if s := plain.Linux.SecurityContext; len(plain.Devices) > 0 || len(s.MaskedPaths) == 0 || s.Apparmor != nil ||
		s.SelinuxOptions != nil {
		t.Errorf("a container without the fields gets %v", plain)
	}
	first := of(&spec.InitContainers[0])
	if first.StopSignal != runtimeapi.Signal_SIGUSR1 {
		t.Errorf("stop signal %v", first.StopSignal)
	}
	for _, got := range []*runtimeapi.ContainerConfig{
		first, of((*v1.Container)(&spec.EphemeralContainers[0].EphemeralContainerCommon)),
	} {
		if !slices.ContainsFunc(got.Devices, func(d *runtimeapi.Device) bool {
			return d.HostPath == "/at/raw" && d.ContainerPath == "/dev/raw" && d.Permissions == "mrw"
		}) {
			t.Errorf("devices %v", got.Devices)
		}
		s := got.Linux.SecurityContext
		if len(s.MaskedPaths) > 0 || len(s.ReadonlyPaths) > 0 {
			t.Errorf("of /proc, %v is masked and %v is read-only", s.MaskedPaths, s.ReadonlyPaths)
		}
		if s.Apparmor == nil || s.Apparmor.ProfileType != runtimeapi.SecurityProfile_Localhost ||
			s.Apparmor.LocalhostRef != "p" {
			t.Errorf("AppArmor profile %v", s.Apparmor)
		}
		o := s.SelinuxOptions
		if o.GetUser() != "u" || o.GetRole() != "r" || o.GetType() != "t" || o.GetLevel() != "l" {
			t.Errorf("SELinux options %v", o)
		}
	}
}
