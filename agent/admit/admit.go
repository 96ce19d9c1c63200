// Package admit decides once whether a pod may run on this node.
//
// Purpose: an ordered list of pure predicates; the first that objects rejects the pod for good, with the kubelet's reason.
//
// Truth owned: the rules. That a pod was admitted is remembered in its checkpoint, so that a restart of the agent cannot reject a running pod.
//
// Concurrency: everything is pure.
package admit

import (
	"fmt"
	"net/netip"

	v1 "k8s.io/api/core/v1"
)

// Input is what a predicate may depend on.
type Input struct {
	Pod *v1.Pod
	// Bound says that an API server has bound the pod to the node.
	Bound bool
	// Others are the admitted pods that have not ended.
	Others []*v1.Pod
	// Allocatable is what pods can have of the node, how many pods it takes (maxPods, podsPerCore) included; nil means any amount.
	Allocatable v1.ResourceList
	Node        Node
}

// Node is what the rules know of the node.
type Node struct {
	// Name and Labels are what node selectors and affinities are matched with.
	Name   string
	Labels map[string]string
	// AppArmor says that the kernel enforces AppArmor profiles.
	AppArmor bool
	// NoStrictGroups says that the runtime is known not to have the supplementalGroupsPolicy Strict.
	NoStrictGroups bool
	// Sysctls are those that pods may set.
	Sysctls Sysctls
	// PodSecurity is the Pod Security Standard that pods are held to: baseline, restricted, or for any pod privileged or empty.
	PodSecurity string
	// Declared are the features that the node declares; nil where pods need not ask for any.
	Declared *Declared
}

// Rejection is why a pod may not run: the pod status's reason and message.
type Rejection struct {
	Reason, Message string
	// Detail is what is known beyond upstream's message, for people: it is in the pod's timeline, not in its status.
	Detail string
	// Also are the other shortages that the same rule found: the pod's status tells the first alone, as a kubelet does.
	Also []Rejection
}

// predicate is one rule: nil, or the rejection.
type predicate func(Input) *Rejection

// predicates returns the rules in the order in which they are asked; the reasons are upstream's (FEATURES 1.2).
func predicates() []predicate {
	return []predicate{podSecurity, sysctlsAllowed, osLabel, osField, groupsPolicyKnown, enoughRoom, nodeMatches, portsFree, appArmorEnforced, fieldsSupported, featuresDeclared}
}

// Check asks every predicate in order and returns the first rejection, nil for a pod that may run.
func Check(in Input) *Rejection {
	for _, check := range predicates() {
		if r := check(in); r != nil {
			return r
		}
	}
	return nil
}

// CheckAdded asks the predicates about what containers do of a pod that was admitted and has got another container since.
func CheckAdded(in Input) *Rejection {
	for _, check := range []predicate{podSecurity, appArmorEnforced, fieldsSupported} {
		if r := check(in); r != nil {
			return r
		}
	}
	return nil
}

// osLabel refuses pods that are labelled for another operating system.
func osLabel(in Input) *Rejection {
	if os, ok := in.Pod.Labels[v1.LabelOSStable]; ok && os != string(v1.Linux) {
		return &Rejection{Reason: "PodOSSelectorNodeLabelDoesNotMatch", Message: "Failed to admit pod as the `kubernetes.io/os` label doesn't match node label"}
	}
	return nil
}

// osField refuses pods for another operating system (KEP-2802).
func osField(in Input) *Rejection {
	if os := in.Pod.Spec.OS; os != nil && os.Name != v1.Linux {
		return &Rejection{Reason: "PodOSNotSupported", Message: "Failed to admit pod as the OS field doesn't match node OS"}
	}
	return nil
}

// hostPort is a port of the host that a pod claims.
type hostPort struct {
	ip       string
	protocol v1.Protocol
	port     int32
	// field is where the pod says it.
	field string
}

// clashes reports whether two claims cannot both be served: same port and protocol, and an address in common.
func (a hostPort) clashes(b hostPort) bool {
	return a.port == b.port && a.protocol == b.protocol && (a.ip == b.ip || a.ip == "" || b.ip == "")
}

// canonical returns an address in its one spelling, and the empty string for every way to say "any".
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

// portsFree refuses a pod whose host ports another pod has (row 52).
func portsFree(in Input) *Rejection {
	for _, other := range in.Others {
		if _, taken := PortTaken(in.Pod, other); taken != "" {
			return &Rejection{Reason: "NodePorts", Message: "Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports", Detail: taken}
		}
	}
	return nil
}

// PortTaken says which host port of a pod another pod has, and the pod's field that asks for it; both are empty where the two can run side by side.
func PortTaken(pod, other *v1.Pod) (field, taken string) {
	mine := hostPorts(pod)
	if len(mine) == 0 {
		return "", ""
	}
	for _, theirs := range hostPorts(other) {
		for _, want := range mine {
			if want.clashes(theirs) {
				return want.field, fmt.Sprintf("%s port %d is taken by pod %s/%s", want.protocol, want.port, other.Namespace, other.Name)
			}
		}
	}
	return "", ""
}

// PortFields are the fields by which a pod asks for host ports.
func PortFields(pod *v1.Pod) []string {
	var out []string
	for _, p := range hostPorts(pod) {
		out = append(out, p.field)
	}
	return out
}

// hostPorts lists the host ports that a pod claims while it runs: those of its app containers and sidecars.
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
			out = append(out, hostPort{canonical(p.HostIP), protocol, p.HostPort, fmt.Sprintf("%s.ports[%d].hostPort", at, i)})
		}
	}
	for i := range pod.Spec.Containers {
		add(fmt.Sprintf("spec.containers[%d]", i), &pod.Spec.Containers[i])
	}
	for i := range pod.Spec.InitContainers {
		if c := &pod.Spec.InitContainers[i]; c.RestartPolicy != nil && *c.RestartPolicy == v1.ContainerRestartPolicyAlways {
			add(fmt.Sprintf("spec.initContainers[%d]", i), c)
		}
	}
	return out
}
