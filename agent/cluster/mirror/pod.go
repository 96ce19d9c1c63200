package mirror

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/berthd/berth/internal/pods"
)

// AnnotationOmits names the parts of its static pod that a mirror pod omits, as field paths
// separated by commas.
const AnnotationOmits = "berth.dev/mirror-omits"

// Of returns the mirror to make for a static pod. The node owns the mirror.
func Of(pod *v1.Pod, node *v1.Node) *v1.Pod {
	out := &v1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace:   pod.Namespace,
		Name:        pod.Name,
		Labels:      maps.Clone(pod.Labels),
		Annotations: maps.Clone(pod.Annotations),
		OwnerReferences: []metav1.OwnerReference{{
			APIVersion: "v1",
			Kind:       "Node",
			Name:       node.Name,
			UID:        node.UID,
			Controller: ptr.To(true),
		}},
	}, Spec: *pod.Spec.DeepCopy()}
	if out.Annotations == nil {
		out.Annotations = map[string]string{}
	}
	out.Annotations[v1.MirrorPodAnnotationKey] = hash(pod)
	if omitted := omit(&out.Spec); len(omitted) > 0 {
		out.Annotations[AnnotationOmits] = strings.Join(omitted, ",")
	}
	return out
}

// hash identifies a version of a static pod.
func hash(pod *v1.Pod) string {
	if h := pod.Annotations[pods.AnnotationHash]; h != "" {
		return h
	}
	return string(pod.UID)
}

// Shows reports whether a mirror shows this version of a static pod.
func Shows(mirror, pod *v1.Pod) bool {
	return mirror.DeletionTimestamp == nil && mirror.Annotations[v1.MirrorPodAnnotationKey] == hash(pod)
}

// omit removes from a spec what the API server refuses in a pod that a node makes, and returns the
// paths of what it removed.
func omit(spec *v1.PodSpec) []string {
	var out []string
	drop := func(path string, there bool, clear func()) {
		if there {
			out = append(out, path)
			clear()
		}
	}
	drop("spec.imagePullSecrets", len(spec.ImagePullSecrets) > 0, func() { spec.ImagePullSecrets = nil })
	drop("spec.runtimeClassName", spec.RuntimeClassName != nil, func() {
		spec.RuntimeClassName, spec.Overhead = nil, nil
	})
	drop("spec.ephemeralContainers", len(spec.EphemeralContainers) > 0, func() { spec.EphemeralContainers = nil })
	// In the API server only a class gives a pod its priority, and only the system's own classes
	// are sure to exist.
	drop("spec.priorityClassName",
		spec.PriorityClassName != "" &&
			!strings.HasPrefix(spec.PriorityClassName, "system-"), func() { spec.PriorityClassName = "" })
	drop("spec.priority", spec.Priority != nil && spec.PriorityClassName == "", func() { spec.Priority = nil })
	for i := range spec.Volumes {
		out = append(out, omitVolume(fmt.Sprintf("spec.volumes[%d]", i), &spec.Volumes[i])...)
	}
	for kind, list := range map[string][]v1.Container{
		"initContainers": spec.InitContainers, "containers": spec.Containers,
	} {
		for i := range list {
			out = append(out, omitEnv(fmt.Sprintf("spec.%s[%d]", kind, i), &list[i])...)
		}
	}
	slices.Sort(out)
	return out
}

// omitVolume replaces a volume that is filled from API objects, or whose driver is one, by an empty
// volume.
func omitVolume(path string, volume *v1.Volume) []string {
	var kind string
	switch {
	case volume.ConfigMap != nil:
		kind = "configMap"
	case volume.Secret != nil:
		kind = "secret"
	case volume.PersistentVolumeClaim != nil:
		kind = "persistentVolumeClaim"
	case volume.CSI != nil:
		kind = "csi"
	case volume.Projected != nil &&
		slices.ContainsFunc(volume.Projected.Sources, func(s v1.VolumeProjection) bool {
			return s.ConfigMap != nil || s.Secret != nil
		}):
		kind = "projected"
	default:
		return nil
	}
	volume.VolumeSource = v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}
	return []string{path + "." + kind}
}

// omitEnv removes from a container the variables that come from API objects.
func omitEnv(path string, c *v1.Container) []string {
	var out []string
	if len(c.EnvFrom) > 0 {
		out, c.EnvFrom = append(out, path+".envFrom"), nil
	}
	c.Env = slices.DeleteFunc(c.Env, func(e v1.EnvVar) bool {
		from := e.ValueFrom != nil && (e.ValueFrom.ConfigMapKeyRef != nil || e.ValueFrom.SecretKeyRef != nil)
		if from {
			out = append(out, path+".env["+e.Name+"]")
		}
		return from
	})
	return out
}
