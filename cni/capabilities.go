package cni

// Capabilities are wishes of a pod. A plugin gets those whose capability its configuration turns on
// (CNI's CONVENTIONS.md, "dynamic plugin-specific fields"); the others have no effect.
type Capabilities struct {
	// PortMappings are the pod's host ports (capability portMappings).
	PortMappings []PortMapping
	// Bandwidth limits the pod's traffic (capability bandwidth). Nil means no limit.
	Bandwidth *Bandwidth
	// DNS is the pod's resolver (capability dns). Nil means none.
	DNS *DNS
	// IPs are addresses that the pod should get, with or without a prefix length (capability ips).
	IPs []string
	// Aliases are further names of the pod in its network (capability aliases).
	Aliases []string
	// Annotations are the pod's annotations (capability io.kubernetes.cri.pod-annotations).
	Annotations map[string]string
	// CgroupPath is the pod's cgroup (capability cgroupPath). Empty means none.
	CgroupPath string
}

// PortMapping leads a port of the node to a port of the pod.
type PortMapping struct {
	HostPort      int32 `json:"hostPort"`
	ContainerPort int32 `json:"containerPort"`
	// Protocol is tcp, udp or sctp.
	Protocol string `json:"protocol"`
	// HostIP is the node's address that is used. Empty means all of them.
	HostIP string `json:"hostIP,omitempty"`
}

// Bandwidth has rates in bits per second, and bursts in bits. A rate of 0 means no limit.
type Bandwidth struct {
	IngressRate  uint64 `json:"ingressRate,omitempty"`
	IngressBurst uint64 `json:"ingressBurst,omitempty"`
	EgressRate   uint64 `json:"egressRate,omitempty"`
	EgressBurst  uint64 `json:"egressBurst,omitempty"`
}

// DNS is what a pod's resolv.conf says.
type DNS struct {
	Servers  []string `json:"servers,omitempty"`
	Searches []string `json:"searches,omitempty"`
	Options  []string `json:"options,omitempty"`
}

// args returns the wishes by the names of their capabilities.
func (c Capabilities) args() map[string]any {
	args := map[string]any{}
	if len(c.PortMappings) > 0 {
		args["portMappings"] = c.PortMappings
	}
	if c.Bandwidth != nil {
		args["bandwidth"] = c.Bandwidth
	}
	if c.DNS != nil {
		args["dns"] = c.DNS
	}
	if len(c.IPs) > 0 {
		args["ips"] = c.IPs
	}
	if len(c.Aliases) > 0 {
		args["aliases"] = c.Aliases
	}
	if len(c.Annotations) > 0 {
		args["io.kubernetes.cri.pod-annotations"] = c.Annotations // containerd's CRI plugin has named it
	}
	if c.CgroupPath != "" {
		args["cgroupPath"] = c.CgroupPath
	}
	return args
}
