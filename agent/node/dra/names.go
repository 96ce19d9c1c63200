package dra

import (
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// wish is a claim that a pod names.
type wish struct {
	// entry is the name of the pod's entry; empty for the claim that stands for extended resources.
	entry string
	name  types.NamespacedName
	// own says that the claim was made for this pod from a template.
	own bool
}

// wishes returns the claims that a pod names, in its order. A template from which no claim was
// needed names none. The words are the kubelet's.
func (m *Manager) wishes(pod *v1.Pod) ([]wish, error) {
	var out []wish
	for i := range pod.Spec.ResourceClaims {
		entry := &pod.Spec.ResourceClaims[i]
		name, own := entry.ResourceClaimName, false
		switch {
		case name != nil:
		case entry.ResourceClaimTemplateName != nil:
			at := slices.IndexFunc(pod.Status.ResourceClaimStatuses, func(s v1.PodResourceClaimStatus) bool {
				return s.Name == entry.Name
			})
			if at < 0 {
				return nil, fmt.Errorf(`pod "%s/%s": ResourceClaim not created yet`, pod.Namespace, pod.Name)
			}
			name, own = pod.Status.ResourceClaimStatuses[at].ResourceClaimName, true
		default:
			return nil, fmt.Errorf(`pod "%s/%s", spec.resourceClaim %q: none of the supported fields are set`,
				pod.Namespace, pod.Name, entry.Name)
		}
		if name != nil {
			out = append(out, wish{entry.Name, types.NamespacedName{Namespace: pod.Namespace, Name: *name}, own})
		}
	}
	if s := m.extended(pod); s != nil {
		out = append(out, wish{name: types.NamespacedName{Namespace: pod.Namespace, Name: s.ResourceClaimName}})
	}
	return out, nil
}

// extended returns the claim that the scheduler made for a pod's extended resources; nil for none.
func (m *Manager) extended(pod *v1.Pod) *v1.PodExtendedResourceClaimStatus {
	if !m.cfg.ExtendedResources {
		return nil
	}
	return pod.Status.ExtendedResourceClaimStatus
}

// check says why a pod may not use a claim; nil if it may. The words are the kubelet's.
func check(pod *v1.Pod, w wish, c *resourcev1.ResourceClaim) error {
	switch {
	case w.own && !metav1.IsControlledBy(c, pod):
		return fmt.Errorf("ResourceClaim %s was not created for Pod %s/%s (Pod is not owner)", w.name, pod.Namespace,
			pod.Name)
	case !slices.ContainsFunc(c.Status.ReservedFor, func(r resourcev1.ResourceClaimConsumerReference) bool {
		return r.UID == pod.UID
	}):
		return fmt.Errorf("pod %s (%s) is not allowed to use ResourceClaim %s (%s)", pod.Name, pod.UID, c.Name, c.UID)
	case c.Status.Allocation == nil:
		return fmt.Errorf("ResourceClaim %s: not allocated", c.Name)
	}
	return nil
}

// baseRequest returns the name of a request without that of its alternative ("gpu/large").
func baseRequest(name string) string {
	base, _, _ := strings.Cut(name, "/")
	return base
}
