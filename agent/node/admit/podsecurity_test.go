package admit

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
)

func TestPodSecurity(t *testing.T) {
	yes, no := true, false
	plain := func(p *v1.Pod) { p.Spec.Containers = []v1.Container{{Name: "main"}} }
	tight := func(p *v1.Pod) {
		plain(p)
		p.Spec.Containers[0].SecurityContext = &v1.SecurityContext{
			RunAsNonRoot:             &yes,
			AllowPrivilegeEscalation: &no,
			Capabilities:             &v1.Capabilities{Drop: []v1.Capability{"ALL"}},
			SeccompProfile:           &v1.SeccompProfile{Type: v1.SeccompProfileTypeRuntimeDefault},
		}
	}
	with := func(edit func(*v1.Pod)) func(*v1.Pod) { return func(p *v1.Pod) { tight(p); edit(p) } }
	hostPath := func(p *v1.Pod) {
		p.Spec.Volumes = []v1.Volume{{
			Name: "v", VolumeSource: v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: "/"}},
		}}
	}
	for name, c := range map[string]struct {
		pod func(*v1.Pod)
		// baseline and restricted are parts of the messages of these standards; empty if the pod is
		// allowed.
		baseline, restricted string
	}{
		"nothing asked": {pod: tight},
		"nothing said": {
			pod: plain,
			restricted: `allowPrivilegeEscalation != false (container "main" must set ` +
				`securityContext.allowPrivilegeEscalation=false)`,
		},
		"host network": {
			pod:        with(func(p *v1.Pod) { p.Spec.HostNetwork = true }),
			baseline:   "host namespaces (hostNetwork=true)",
			restricted: "host namespaces",
		},
		"host path": {
			pod:        with(hostPath),
			baseline:   `hostPath volumes (volume "v")`,
			restricted: "restricted volume types",
		},
		"privileged": {
			pod:        with(func(p *v1.Pod) { p.Spec.Containers[0].SecurityContext.Privileged = &yes }),
			baseline:   "privileged (container",
			restricted: "privileged",
		},
		"a host port": {
			pod:        with(func(p *v1.Pod) { p.Spec.Containers[0].Ports = []v1.ContainerPort{{HostPort: 80}} }),
			baseline:   "hostPort",
			restricted: "hostPort",
		},
		"an init container's": {
			pod:        with(func(p *v1.Pod) { p.Spec.InitContainers = []v1.Container{{Name: "first"}} }),
			restricted: `container "first" must`,
		},
		"an ephemeral container's": {pod: with(func(p *v1.Pod) {
			p.Spec.EphemeralContainers = []v1.EphemeralContainer{{EphemeralContainerCommon: v1.EphemeralContainerCommon{
				Name: "debug", SecurityContext: &v1.SecurityContext{Privileged: &yes},
			}}}
		}), baseline: `container "debug"`, restricted: `container "debug"`},
	} {
		for level, want := range map[string]string{
			"":           "",
			"privileged": "",
			"baseline":   c.baseline,
			"restricted": c.restricted,
		} {
			p := pod()
			c.pod(p)
			r := podSecurity(Input{Pod: p, Node: Node{PodSecurity: level}})
			if (r != nil) != (want != "") {
				t.Errorf("%s at level %q: %+v", name, level, r)
			} else if r != nil &&
				(r.Reason != "PodSecurity" ||
					!strings.HasPrefix(r.Message, `violates PodSecurity "`+level+`:latest": `) ||
					!strings.Contains(r.Message, want)) {
				t.Errorf("%s at level %q: %+v", name, level, r)
			}
		}
	}
}
