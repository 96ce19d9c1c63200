package generate

// Node is what the translation needs to know of the node and its runtime. It is the same for all
// pods of one runtime handler.
type Node struct {
	// PodLogsDir is where the pods' log directories are, as in the config.
	PodLogsDir string
	// DNS is what pods inherit of name resolution.
	DNS NodeDNS
	// SeccompDefault is the config's seccompDefault: containers without a profile get the runtime's
	// profile instead of none.
	SeccompDefault bool
	// SeccompRoot is the absolute directory beneath which Localhost profiles are.
	SeccompRoot string
	// RuntimeAnnotations are patterns of the pods' annotations that the runtime gets.
	RuntimeAnnotations []string
	// MaskedPaths are paths to hide from containers beside the usual ones: the thermal_throttle
	// directories of the node's CPUs.
	MaskedPaths []string
	// Features is what the kernel and the runtime handler can do.
	Features Features
}

// Features is what the kernel and the runtime handler can do. If a feature is false, a pod that
// needs it is refused.
type Features struct {
	// AppArmor says that the kernel enforces AppArmor profiles.
	AppArmor bool
	// SELinux says that the kernel enforces SELinux. Only then are volumes relabelled.
	SELinux bool
	// SupplementalGroupsPolicy says that the runtime honours the policy Strict.
	SupplementalGroupsPolicy bool
	// RecursiveReadOnly says that the runtime handler can make mounts recursively read-only.
	RecursiveReadOnly bool
}

// NodeDNS is what pods inherit of name resolution.
type NodeDNS struct {
	// ClusterDNS and ClusterDomain are the config's; both may be empty.
	ClusterDNS    []string
	ClusterDomain string
	// Cluster says that the node is one of a cluster. On other nodes, pods that ask for the
	// cluster's DNS, as they do by default, get the node's DNS without a warning.
	Cluster bool
	// Resolv is the node's resolver configuration. It is nil if the config's resolvConf is empty;
	// then a pod uses itself as its name server.
	Resolv *ResolvConf
	// NodeIPs are the node's addresses. Only their families matter, and only if Resolv is nil.
	NodeIPs []string
}

// Warning is an event about a pod whose sandbox can be made all the same.
type Warning struct {
	// Reason is the event's reason, as the kubelet spells it.
	Reason string
	// Message is the event's message.
	Message string
	// Node is the message of the same event about the node, empty for none.
	Node string
}

// The reasons of a [Warning].
const (
	ReasonDNSConfigForming  = "DNSConfigForming"
	ReasonMissingClusterDNS = "MissingClusterDNS"
)
