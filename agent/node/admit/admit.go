// Package admit decides once whether a pod may run on this node.
//
// Purpose: an ordered list of pure predicates. The first predicate that objects rejects the pod for
// good, with the kubelet's reason.
//
// Truth owned: the rules. The pod's checkpoint records that the pod was admitted, so that a restart
// of the agent cannot reject a running pod.
//
// Concurrency: all functions are pure.
package admit

import (
	"fmt"
	"net/netip"

	v1 "k8s.io/api/core/v1"

	"github.com/berthd/berth/internal/pods"
)

// Input is what a predicate may read.
type Input struct {
	Pod *v1.Pod
	// FromAPI says that the pod came from an API server, which has bound it to the node.
	FromAPI bool
	// Others are the admitted pods that have not ended.
	Others []*v1.Pod
	// Allocatable is what the node has for pods, with the number of pods (maxPods, podsPerCore).
	// Nil means any amount.
	Allocatable v1.ResourceList
	// Unallocated is why the pod's containers cannot have the devices that they want; nil if they
	// have them, or want none.
	Unallocated *Rejection
	Node        Node
}

// Node is what the rules know about the node.
type Node struct {
	// Name and Labels are what node selectors and node affinities are compared with.
	Name   string
	Labels map[string]string
	// Taints are those of the Node object; none without an API server. TaintComparison says that
	// tolerations may compare numbers (the feature gate TaintTolerationComparisonOperators).
	Taints          []v1.Taint
	TaintComparison bool
	// AppArmor says that the kernel enforces AppArmor profiles.
	AppArmor bool
	// NoStrictGroups says that the runtime does not support supplementalGroupsPolicy Strict.
	NoStrictGroups bool
	// Sysctls are the sysctls that pods may set.
	Sysctls Sysctls
	// PodSecurity is the Pod Security Standard that pods must meet: baseline or restricted.
	// Privileged and the empty string allow any pod.
	PodSecurity string
	// Pressures are the node's conditions about what it lacks, sorted.
	Pressures []v1.NodeConditionType
	// Declared are the features that the node declares; nil if admission does not check them.
	Declared *Declared
	// ShuttingDown says that the machine shuts down.
	ShuttingDown bool
	// ByClaim says that a container may have an extended resource by a resource claim (feature gate
	// DRAExtendedResource). Then it takes nothing of the node's amount.
	ByClaim bool
}

// Rejection says why a pod may not run. Reason and Message go into the pod's status.
type Rejection struct {
	Reason, Message string
	// Detail is what the agent knows beyond upstream's message. It is for people, and it is in the
	// pod's timeline only.
	Detail string
	// Also are the other shortages that the same rule found. The pod's status reports the first
	// shortage only, as a kubelet's does.
	Also []Rejection
	// Lacks is what the pod lacks, if it is refused for want of resources.
	Lacks []Shortage
	// Later says that the pod is not refused for good: it has to wait, for what Detail says.
	Later bool
}

// Shortage is how much of a resource is missing: thousandths of a core for cpu, whole units for
// other resources.
type Shortage struct {
	Resource v1.ResourceName
	Amount   int64
}

// predicate is one rule. It returns nil for a pod that may run.
type predicate func(Input) *Rejection

// predicates returns the rules in the order in which Check applies them. The reasons are those of
// the kubelet's admit handlers (pkg/kubelet/lifecycle).
func predicates() []predicate {
	return []predicate{
		podSecurity, enoughLeft, staticWaits, sysctlsAllowed, allocated, osLabel, osField, groupsPolicyKnown, enoughRoom,
		nodeMatches, portsFree, taintsTolerated, appArmorEnforced, fieldsSupported, featuresDeclared, notShuttingDown,
	}
}

// Check applies every predicate in order and returns the first rejection; nil for a pod that may
// run.
func Check(in Input) *Rejection {
	for _, check := range predicates() {
		if r := check(in); r != nil {
			return r
		}
	}
	return nil
}

// CheckAdded applies the predicates that depend on containers. It is for an admitted pod that has
// got another container since.
func CheckAdded(in Input) *Rejection {
	for _, check := range []predicate{podSecurity, appArmorEnforced, fieldsSupported} {
		if r := check(in); r != nil {
			return r
		}
	}
	return nil
}

// allocated refuses a pod whose containers cannot have the devices that they want.
func allocated(in Input) *Rejection { return in.Unallocated }

// osLabel refuses pods that are labelled for another operating system.
func osLabel(in Input) *Rejection {
	if os, ok := in.Pod.Labels[v1.LabelOSStable]; ok && os != string(v1.Linux) {
		return &Rejection{
			Reason:  "PodOSSelectorNodeLabelDoesNotMatch",
			Message: "Failed to admit pod as the `kubernetes.io/os` label doesn't match node label",
		}
	}
	return nil
}

// osField refuses pods for another operating system (KEP-2802).
func osField(in Input) *Rejection {
	if os := in.Pod.Spec.OS; os != nil && os.Name != v1.Linux {
		return &Rejection{
			Reason: "PodOSNotSupported", Message: "Failed to admit pod as the OS field doesn't match node OS",
		}
	}
	return nil
}

// hostPort is a port of the host that a pod claims.
type hostPort struct {
	ip       string
	protocol v1.Protocol
	port     int32
	// field is the pod's field that asks for the port.
	field string
}

// clashes reports whether two ports exclude each other: they have the same port and protocol, and
// an address in common.
func (a hostPort) clashes(b hostPort) bool {
	return a.port == b.port && a.protocol == b.protocol && (a.ip == b.ip || a.ip == "" || b.ip == "")
}

// canonical returns an address in one spelling. It returns the empty string for every way to write
// "any address".
func canonical(ip string) string {
	addr, err := netip.ParseAddr(ip)
	switch {
	case err != nil:
		return ip
	case addr.IsUnspecified():
		return ""
	default:
		return addr.Unmap().String()
	}
}

// portsFree refuses a pod if another pod has one of its host ports, as upstream's NodePorts does.
func portsFree(in Input) *Rejection {
	for _, other := range in.Others {
		if _, taken := PortTaken(in.Pod, other); taken != "" {
			return &Rejection{
				Reason:  "NodePorts",
				Message: "Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports",
				Detail:  taken,
			}
		}
	}
	return nil
}

// PortTaken returns the field by which a pod asks for a host port that the other pod has, and a
// text about the clash. Both are empty if the two pods can run side by side.
func PortTaken(pod, other *v1.Pod) (field, taken string) {
	mine := hostPorts(pod)
	if len(mine) == 0 {
		return "", ""
	}
	for _, theirs := range hostPorts(other) {
		for _, want := range mine {
			if want.clashes(theirs) {
				return want.field, fmt.Sprintf("%s port %d is taken by pod %s/%s", want.protocol, want.port,
					other.Namespace, other.Name)
			}
		}
	}
	return "", ""
}

// PortFields returns the fields by which a pod asks for host ports.
func PortFields(pod *v1.Pod) []string {
	var out []string
	for _, p := range hostPorts(pod) {
		out = append(out, p.field)
	}
	return out
}

// hostPorts lists the host ports that a pod has while it runs: those of its app containers and of
// its sidecars.
func hostPorts(pod *v1.Pod) []hostPort {
	var out []hostPort
	add := func(at string, c *v1.Container) {
		for i, p := range c.Ports {
			if p.HostPort <= 0 {
				continue
			}
			protocol := p.Protocol
			if protocol == "" {
				protocol = v1.ProtocolTCP
			}
			out = append(out, hostPort{
				canonical(p.HostIP), protocol, p.HostPort, fmt.Sprintf("%s.ports[%d].hostPort", at, i),
			})
		}
	}
	for i := range pod.Spec.Containers {
		add(fmt.Sprintf("spec.containers[%d]", i), &pod.Spec.Containers[i])
	}
	for i := range pod.Spec.InitContainers {
		if c := &pod.Spec.InitContainers[i]; pods.Sidecar(c) {
			add(fmt.Sprintf("spec.initContainers[%d]", i), c)
		}
	}
	return out
}
