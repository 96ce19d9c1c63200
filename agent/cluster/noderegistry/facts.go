package noderegistry

import (
	"maps"
	"runtime"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Facts are the node's current facts for its Node object.
type Facts struct {
	// Addresses are the node's IP addresses, the primary one first.
	Addresses []string
	// Capacity is what the machine has, Allocatable the part that pods can have.
	Capacity, Allocatable v1.ResourceList
	// Fresh says that the machine has not registered yet: what a Node object of its name has of
	// other extended resources was another machine's.
	Fresh bool
	Info  v1.NodeSystemInfo
	// Images are the images of the node, the largest first. The list is limited to those to report.
	Images   []v1.ContainerImage
	Handlers []v1.NodeRuntimeHandler
	Features *v1.NodeFeatures
	// Declared are the features that the agent declares, sorted.
	Declared []string
	// Port is the kubelet server's port; 0 if there is none.
	Port int32
	// VolumesInUse are the volumes that no controller may detach from the node.
	VolumesInUse []v1.UniqueVolumeName
	// Faults say why the node is not ready. Empty if it is ready.
	Faults []string
	// MemoryPressure, DiskPressure and PIDPressure say of which resource there is too little.
	MemoryPressure, DiskPressure, PIDPressure bool
}

// Config is the configuration of a node's registration.
type Config struct {
	Name string
	// Register makes the Node object if there is none (registerNode), with these labels and taints
	// and this provider's identifier.
	Register   bool
	Labels     map[string]string
	Taints     []v1.Taint
	ProviderID string
	// External says that a cloud provider outside of the agent initializes the node
	// (--cloud-provider=external). NodeIPs are the addresses of --node-ip.
	External bool
	NodeIPs  []string
	// Update is how often the status is computed (nodeStatusUpdateFrequency). Report is how often
	// it is written without a change (nodeStatusReportFrequency).
	Update, Report time.Duration
	// LeaseDuration is how long a renewed Lease says that the node lives
	// (nodeLeaseDurationSeconds). The Lease is renewed four times in this time.
	LeaseDuration time.Duration
}

// annotationAttach says that the controller attaches volumes of this node.
const annotationAttach = "volumes.kubernetes.io/controller-managed-attach-detach"

// annotationNodeIP has the addresses of --node-ip for a cloud provider.
const annotationNodeIP = "alpha.kubernetes.io/provided-node-ip"

// taintUninitialized keeps pods away until the cloud provider has initialized the node.
const taintUninitialized = "node.cloudprovider.kubernetes.io/uninitialized"

// DefaultLabels are the labels that a node always sets itself.
func DefaultLabels(name string) map[string]string {
	return map[string]string{
		v1.LabelHostname: name, v1.LabelOSStable: runtime.GOOS, v1.LabelArchStable: runtime.GOARCH,
		"beta.kubernetes.io/os": runtime.GOOS, "beta.kubernetes.io/arch": runtime.GOARCH,
	}
}

// Initial returns the Node to make.
func Initial(cfg Config, f Facts, now time.Time) *v1.Node {
	n := &v1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name:        cfg.Name,
			Labels:      maps.Clone(cfg.Labels),
			Annotations: map[string]string{annotationAttach: "true"},
		},
		Spec: v1.NodeSpec{ProviderID: cfg.ProviderID},
	}
	if n.Labels == nil {
		n.Labels = map[string]string{}
	}
	maps.Copy(n.Labels, DefaultLabels(cfg.Name))
	n.Spec.Taints = append(n.Spec.Taints, cfg.Taints...)
	if cfg.External {
		n.Spec.Taints = append(n.Spec.Taints, v1.Taint{
			Key:    taintUninitialized,
			Value:  "true",
			Effect: v1.TaintEffectNoSchedule,
		})
	}
	if ip := providedIP(cfg); ip != "" {
		n.Annotations[annotationNodeIP] = ip
	}
	n.Status = Status(cfg, f, n, now)
	return n
}

// providedIP is the value of [annotationNodeIP], empty if there is none.
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

// Adjust returns a patch of the labels, annotations and the provider's identifier that an existing
// Node lacks, nil if it has them all.
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
