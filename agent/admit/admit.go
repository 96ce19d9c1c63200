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
	// Others are the admitted pods that have not ended.
	Others []*v1.Pod
	// MaxPods is how many pods the node takes (maxPods, podsPerCore); 0 means any number.
	MaxPods int
}

// Rejection is why a pod may not run: the pod status's reason and message.
type Rejection struct {
	Reason, Message string
}

// predicate is one rule: nil, or the rejection.
type predicate func(Input) *Rejection

// predicates returns the rules in the order in which they are asked; the reasons are upstream's (FEATURES 1.2).
func predicates() []predicate {
	return []predicate{osLabel, osField, osSelector, roomLeft, portsFree}
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

// roomLeft refuses a pod on a node that has as many as it takes (row 23).
func roomLeft(in Input) *Rejection {
	if in.MaxPods == 0 || len(in.Others) < in.MaxPods {
		return nil
	}
	return &Rejection{"OutOfpods", fmt.Sprintf("Node didn't have enough resource: pods, requested: 1, used: %d, capacity: %d", len(in.Others), in.MaxPods)}
}

// osLabel refuses pods that are labelled for another operating system.
func osLabel(in Input) *Rejection {
	if os, ok := in.Pod.Labels[v1.LabelOSStable]; ok && os != string(v1.Linux) {
		return &Rejection{"PodOSSelectorNodeLabelDoesNotMatch", "Failed to admit pod as the `kubernetes.io/os` label doesn't match node label"}
	}
	return nil
}

// osField refuses pods for another operating system (KEP-2802).
func osField(in Input) *Rejection {
	if os := in.Pod.Spec.OS; os != nil && os.Name != v1.Linux {
		return &Rejection{"PodOSNotSupported", "Failed to admit pod as the OS field doesn't match node OS"}
	}
	return nil
}

// osSelector refuses pods that ask for a node with another operating system.
func osSelector(in Input) *Rejection {
	if os, ok := in.Pod.Spec.NodeSelector[v1.LabelOSStable]; ok && os != string(v1.Linux) {
		return &Rejection{"NodeAffinity", "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector"}
	}
	return nil
}

// hostPort is a port of the host that a pod claims.
type hostPort struct {
	ip       string
	protocol v1.Protocol
	port     int32
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
	mine := hostPorts(in.Pod)
	if len(mine) == 0 {
		return nil
	}
	for _, other := range in.Others {
		for _, theirs := range hostPorts(other) {
			for _, want := range mine {
				if want.clashes(theirs) {
					return &Rejection{"NodePorts", fmt.Sprintf(
						"Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports: %s port %d is taken by pod %s/%s",
						want.protocol, want.port, other.Namespace, other.Name)}
				}
			}
		}
	}
	return nil
}

// hostPorts lists the host ports that a pod claims while it runs: those of its app containers and sidecars.
func hostPorts(pod *v1.Pod) []hostPort {
	var out []hostPort
	add := func(c *v1.Container) {
		for _, p := range c.Ports {
			if p.HostPort <= 0 {
				continue
			}
			protocol := p.Protocol
			if protocol == "" {
				protocol = v1.ProtocolTCP
			}
			out = append(out, hostPort{canonical(p.HostIP), protocol, p.HostPort})
		}
	}
	for i := range pod.Spec.Containers {
		add(&pod.Spec.Containers[i])
	}
	for i := range pod.Spec.InitContainers {
		if c := &pod.Spec.InitContainers[i]; c.RestartPolicy != nil && *c.RestartPolicy == v1.ContainerRestartPolicyAlways {
			add(c)
		}
	}
	return out
}
