package noderegistry

import (
	"maps"
	"runtime"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Facts are what there is to say of the node now.
type Facts struct {
	// Addresses are the node's IP addresses, the primary one first.
	Addresses []string
	// Capacity is what the machine has, Allocatable what of it pods can have.
	Capacity, Allocatable v1.ResourceList
	Info                  v1.NodeSystemInfo
	// Images are those that the node has, the largest first and not more than are to be told.
	Images   []v1.ContainerImage
	Handlers []v1.NodeRuntimeHandler
	Features *v1.NodeFeatures
	// Declared are the features that the agent declares, sorted.
	Declared []string
	// Port is the kubelet server's; 0 where there is none.
	Port int32
	// VolumesInUse are the volumes that no controller may detach from the node.
	VolumesInUse []v1.UniqueVolumeName
	// Faults say why the node is not ready; none where it is.
	Faults []string
	// MemoryPressure, DiskPressure and PIDPressure say of what there is too little.
	MemoryPressure, DiskPressure, PIDPressure bool
}

// Config is what the node was told to say of itself.
type Config struct {
	Name string
	// Register has the Node object made where there is none (registerNode), with these labels, taints and this provider's identifier.
	Register   bool
	Labels     map[string]string
	Taints     []v1.Taint
	ProviderID string
	// External says that a cloud provider outside of the agent initializes the node (--cloud-provider=external); NodeIPs are those that were given for it (--node-ip).
	External bool
	NodeIPs  []string
	// Update is how often the status is computed (nodeStatusUpdateFrequency), Report how often it is written although nothing changed (nodeStatusReportFrequency).
	Update, Report time.Duration
	// LeaseDuration is for how long a renewed Lease says that the node lives (nodeLeaseDurationSeconds); it is renewed four times as often.
	LeaseDuration time.Duration
}

// annotationAttach says that volumes of this node are attached by the controller.
const annotationAttach = "volumes.kubernetes.io/controller-managed-attach-detach"

// annotationNodeIP tells a cloud provider which address the node was given.
const annotationNodeIP = "alpha.kubernetes.io/provided-node-ip"

// taintUninitialized keeps pods away until the cloud provider has looked at the node.
const taintUninitialized = "node.cloudprovider.kubernetes.io/uninitialized"

// DefaultLabels are the labels that a node sets itself, at all times.
func DefaultLabels(name string) map[string]string {
	return map[string]string{
		v1.LabelHostname: name, v1.LabelOSStable: runtime.GOOS, v1.LabelArchStable: runtime.GOARCH,
		"beta.kubernetes.io/os": runtime.GOOS, "beta.kubernetes.io/arch": runtime.GOARCH,
	}
}

// Initial returns the Node as it is made.
func Initial(cfg Config, f Facts, now time.Time) *v1.Node {
	n := &v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: cfg.Name, Labels: maps.Clone(cfg.Labels), Annotations: map[string]string{annotationAttach: "true"}},
		Spec:       v1.NodeSpec{ProviderID: cfg.ProviderID},
	}
	if n.Labels == nil {
		n.Labels = map[string]string{}
	}
	maps.Copy(n.Labels, DefaultLabels(cfg.Name))
	n.Spec.Taints = append(n.Spec.Taints, cfg.Taints...)
	if cfg.External {
		n.Spec.Taints = append(n.Spec.Taints, v1.Taint{Key: taintUninitialized, Value: "true", Effect: v1.TaintEffectNoSchedule})
	}
	if ip := providedIP(cfg); ip != "" {
		n.Annotations[annotationNodeIP] = ip
	}
	n.Status = Status(cfg, f, n, now)
	return n
}

// providedIP is the value of the annotation about --node-ip; empty where there is none.
func providedIP(cfg Config) string {
	if !cfg.External || len(cfg.NodeIPs) == 0 {
		return ""
	}
	ip := cfg.NodeIPs[0]
	for _, more := range cfg.NodeIPs[1:] {
		ip += "," + more
	}
	return ip
}

// Adjust returns the labels, annotations and the provider's identifier that a Node lacks which there is already, as a patch; nil where it has them all.
func Adjust(cfg Config, have *v1.Node) map[string]any {
	labels, annotations := map[string]any{}, map[string]any{}
	for k, v := range DefaultLabels(cfg.Name) {
		if have.Labels[k] != v {
			labels[k] = v
		}
	}
	if have.Annotations[annotationAttach] != "true" {
		annotations[annotationAttach] = "true"
	}
	if ip := providedIP(cfg); ip != "" && have.Annotations[annotationNodeIP] != ip {
		annotations[annotationNodeIP] = ip
	}
	patch := map[string]any{}
	if len(labels)+len(annotations) > 0 {
		patch["metadata"] = map[string]any{"labels": labels, "annotations": annotations}
	}
	if cfg.ProviderID != "" && have.Spec.ProviderID == "" {
		patch["spec"] = map[string]any{"providerID": cfg.ProviderID}
	}
	if len(patch) == 0 {
		return nil
	}
	return patch
}
