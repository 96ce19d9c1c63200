package source

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/berthd/berth/internal/pods"
)

// podOf returns the pod of a manifest that is in order.
func podOf(t *testing.T, manifest string) *v1.Pod {
	t.Helper()
	items := Decoder{NodeName: "n"}.Decode("/m/web.yaml", []byte(manifest))
	if len(items) != 1 || items[0].Pod == nil {
		t.Fatalf("items %+v", items)
	}
	pod := items[0].Pod
	pod.Annotations[pods.AnnotationSource] = pods.SourceFile
	return pod
}

const ephemeralPod = `
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  volumes: [{name: data, emptyDir: {}}]
  initContainers: [{name: init, image: i}]
  containers: [{name: main, image: m}]
`

func TestWithEphemeral(t *testing.T) {
	pod := podOf(t, ephemeralPod)
	container := func(change func(*v1.EphemeralContainer)) *v1.EphemeralContainer {
		c := &v1.EphemeralContainer{EphemeralContainerCommon: v1.EphemeralContainerCommon{
			Name: "debug", Image: "tools",
		}}
		change(c)
		return c
	}
	first, err := WithEphemeral(pod, container(func(c *v1.EphemeralContainer) { c.TargetContainerName = "main" }))
	if err != nil {
		t.Fatal(err)
	}
	if len(pod.Spec.EphemeralContainers) != 0 {
		t.Error("the pod itself was changed")
	}
	got := first.Spec.EphemeralContainers[0]
	if got.ImagePullPolicy != v1.PullAlways || got.TerminationMessagePath != "/dev/termination-log" ||
		got.TerminationMessagePolicy != v1.TerminationMessageReadFile {
		t.Errorf("defaults: %+v", got)
	}
	second, err := WithEphemeral(first, container(func(c *v1.EphemeralContainer) {
		c.Name, c.VolumeMounts = "more", []v1.VolumeMount{{Name: "data", MountPath: "/data"}}
	}))
	if err != nil || len(second.Spec.EphemeralContainers) != 2 {
		t.Fatalf("the second one: %v", err)
	}
	yes := true
	if _, err := WithEphemeral(pod,
		container(func(c *v1.EphemeralContainer) {
			c.SecurityContext = &v1.SecurityContext{Privileged: &yes}
		})); err != nil {
		t.Errorf("privileged: %v", err)
	}
	for want, change := range map[string]func(*v1.EphemeralContainer){
		"name: Required value":            func(c *v1.EphemeralContainer) { c.Name = "" },
		"name: Duplicate value: \"main\"": func(c *v1.EphemeralContainer) { c.Name = "main" },
		"name: Duplicate value: \"init\"": func(c *v1.EphemeralContainer) { c.Name = "init" },
		"name: Invalid value":             func(c *v1.EphemeralContainer) { c.Name = "../x" },
		"image: Required value":           func(c *v1.EphemeralContainer) { c.Image = "" },
		"targetContainerName: Not found":  func(c *v1.EphemeralContainer) { c.TargetContainerName = "nobody" },
		"mountPath: Required value": func(c *v1.EphemeralContainer) {
			c.VolumeMounts = []v1.VolumeMount{{Name: "data"}}
		},
		"volumeMounts[0].name: Not found": func(c *v1.EphemeralContainer) {
			c.VolumeMounts = []v1.VolumeMount{{Name: "no", MountPath: "/x"}}
		},
		"cannot be set for an Ephemeral": func(c *v1.EphemeralContainer) {
			c.Ports = []v1.ContainerPort{{ContainerPort: 1}}
		},
		"livenessProbe: Forbidden": func(c *v1.EphemeralContainer) { c.LivenessProbe = &v1.Probe{} },
	} {
		if _, err := WithEphemeral(pod, container(change)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	if _, err := WithEphemeral(first, container(func(*v1.EphemeralContainer) {})); err == nil ||
		!strings.Contains(err.Error(), `Duplicate value: "debug"`) {
		t.Errorf("the same again: %v", err)
	}
}
