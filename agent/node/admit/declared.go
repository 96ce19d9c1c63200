package admit

import (
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/component-helpers/nodedeclaredfeatures"
)

// Declared are the features that the node declares (KEP-5328). It answers which other features a
// pod needs. Make it with [NewDeclared].
type Declared struct {
	features nodedeclaredfeatures.FeatureSet
	version  *version.Version
}

// NewDeclared returns the features of a node of a version of Kubernetes. Features that the library
// does not know have no effect: no pod can need them.
func NewDeclared(features []string, kubernetes string) (*Declared, error) {
	v, err := version.Parse(kubernetes)
	if err != nil {
		return nil, fmt.Errorf("reading the version of Kubernetes: %w", err)
	}
	features = slices.Sorted(slices.Values(features))
	return &Declared{features: nodedeclaredfeatures.DefaultFramework.TryMap(features), version: v}, nil
}

// MissingFor returns the features that a pod needs and the node does not declare.
func (d *Declared) MissingFor(pod *v1.Pod) ([]string, error) {
	needed, err := nodedeclaredfeatures.DefaultFramework.InferForPodScheduling(about(pod), d.version)
	if err != nil {
		return nil, err
	}
	return d.missing(needed)
}

// MissingForChange returns the features that a change of a pod needs and the node does not declare.
// Both versions of the pod have the same containers.
func (d *Declared) MissingForChange(from, to *v1.Pod) ([]string, error) {
	needed, err := nodedeclaredfeatures.DefaultFramework.InferForPodUpdate(about(from), about(to), d.version)
	if err != nil {
		return nil, err
	}
	return d.missing(needed)
}

func (d *Declared) missing(needed nodedeclaredfeatures.FeatureSet) ([]string, error) {
	match, err := nodedeclaredfeatures.DefaultFramework.MatchNodeFeatureSet(needed, d.features)
	if err != nil || match.IsMatch {
		return nil, err
	}
	return match.UnsatisfiedRequirements, nil
}

func about(pod *v1.Pod) *nodedeclaredfeatures.PodInfo {
	return &nodedeclaredfeatures.PodInfo{Spec: &pod.Spec, Status: &pod.Status}
}

// Unavailable returns the kubelet's message about missing features.
func Unavailable(features []string) string {
	return "Pod requires node features that are not available: " + strings.Join(features, ", ")
}

// featuresDeclared refuses a pod that needs a feature which the node does not declare (KEP-5328).
// The scheduler checks this, too, but somebody can bind a pod without the scheduler.
func featuresDeclared(in Input) *Rejection {
	if in.Node.Declared == nil {
		return nil
	}
	missing, err := in.Node.Declared.MissingFor(in.Pod)
	switch {
	case err != nil:
		return &Rejection{
			Reason: reasonFeature, Message: fmt.Sprintf("Failed to infer pod's feature requirements: %v", err),
		}
	case len(missing) > 0:
		return &Rejection{Reason: reasonFeature, Message: Unavailable(missing)}
	}
	return nil
}
