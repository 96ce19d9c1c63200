// Package node knows the machine that the agent runs on.
//
// Purpose: the node's name, addresses, capacity, resolver and hosts files, and kernel features, as pods and steps need them.
//
// Truth owned: the node's facts. Those that change while the agent runs (addresses, files) are read anew, at most once a second.
//
// Concurrency: a [Node] is safe for concurrent use.
package node

import (
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/berthd/berth/agent/admit"
	"github.com/berthd/berth/agent/generate"
	"github.com/berthd/berth/configs"
)

// fresh is how long addresses and files that were read are taken as still true.
const fresh = time.Second

// Node is this machine.
type Node struct {
	// Name is the node's name.
	Name     string
	cfg      *configs.Config
	capacity v1.ResourceList
	features generate.Features
	masked   []string
	sysctls  admit.Sysctls
	declared *admit.Declared
	log      *slog.Logger

	mu sync.Mutex
	// handlers is what each runtime handler can do, by its name; the empty one is the runtime's own choice.
	handlers map[string]Handler
	// podSecurity is the standard that pods are held to.
	podSecurity string
	// apiLabels are those of the Node object; nil where there is none.
	apiLabels map[string]string
	// met says that the runtime has said what it can do.
	met    bool
	read   time.Time
	ips    []string
	resolv *generate.ResolvConf
	hosts  []byte
	// complaint is what was last said about the resolver configuration, so that it is said once.
	complaint string
}

// New reads the machine's facts.
func New(cfg *configs.Config, log *slog.Logger) (*Node, error) {
	name, err := configs.NodeName(cfg)
	if err != nil {
		return nil, err
	}
	capacity, err := capacity(cfg)
	if err != nil {
		return nil, err
	}
	masked, err := filepath.Glob("/sys/devices/system/cpu/cpu*/thermal_throttle")
	if err != nil {
		return nil, fmt.Errorf("looking for thermal_throttle directories: %w", err)
	}
	sysctls, err := admit.NewSysctls(kernelRelease(), cfg.Kubelet.AllowedUnsafeSysctls)
	if err != nil {
		return nil, fmt.Errorf("allowedUnsafeSysctls: %w", err)
	}
	features, err := declared(cfg)
	if err != nil {
		return nil, err
	}
	n := &Node{Name: name, sysctls: sysctls, declared: features, cfg: cfg, capacity: capacity, log: log, masked: masked, podSecurity: string(cfg.Berth.PodSecurity)}
	n.features = generate.Features{AppArmor: enabled("/sys/module/apparmor/parameters/enabled"), SELinux: exists("/sys/fs/selinux/enforce")}
	return n, nil
}

// Handler is what a runtime handler can do: make mounts recursively read-only, and give a pod users of its own.
type Handler struct {
	RecursiveReadOnly, UserNamespaces bool
}

// SetRuntimeFeatures notes what the runtime can do, once it has said so; handlers says it by the handler's name.
func (n *Node) SetRuntimeFeatures(supplementalGroupsPolicy bool, handlers map[string]Handler) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.features.SupplementalGroupsPolicy = supplementalGroupsPolicy
	n.handlers = maps.Clone(handlers)
	n.met = true
}

// SetPodSecurity has pods be held to another Pod Security Standard from now on; those that were admitted stay.
func (n *Node) SetPodSecurity(standard string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.podSecurity = standard
}

// UserNamespaces reports whether a runtime handler, empty for the runtime's own choice, can give a pod users of its own.
func (n *Node) UserNamespaces(handler string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.handlers[handler].UserNamespaces
}

// Admission returns what admitting a pod must know of the node. A runtime that has not said what it can do is taken to be able: a rejection is for good, and
// what is generated for the pod is checked again.
func (n *Node) Admission() admit.Node {
	n.mu.Lock()
	defer n.mu.Unlock()
	return admit.Node{
		Name: n.Name, Labels: n.labels(), AppArmor: n.features.AppArmor, NoStrictGroups: n.met && !n.features.SupplementalGroupsPolicy, Sysctls: n.sysctls, PodSecurity: n.podSecurity,
		Declared: n.declared,
	}
}

// labels are the node's labels: those that every node has, and the config's.
func (n *Node) labels() map[string]string {
	out := maps.Clone(n.apiLabels)
	if out == nil {
		out = maps.Clone(n.cfg.NodeLabels)
	}
	if out == nil {
		out = map[string]string{}
	}
	out[v1.LabelHostname], out[v1.LabelOSStable], out[v1.LabelArchStable] = n.Name, runtime.GOOS, runtime.GOARCH
	return out
}

// Generate returns what translating a pod must know of the node; handler runs the pod, empty for the runtime's own choice.
func (n *Node) Generate(handler string) generate.Node {
	n.refresh()
	n.mu.Lock()
	defer n.mu.Unlock()
	k := &n.cfg.Kubelet
	features := n.features
	features.RecursiveReadOnly = n.handlers[handler].RecursiveReadOnly
	return generate.Node{
		PodLogsDir:     k.PodLogsDir,
		DNS:            generate.NodeDNS{ClusterDNS: k.ClusterDNS, ClusterDomain: k.ClusterDomain, Cluster: n.cfg.Kubeconfig != "", Resolv: n.resolv, NodeIPs: n.ips},
		SeccompDefault: k.SeccompDefault != nil && *k.SeccompDefault,
		SeccompRoot:    n.cfg.SeccompRoot(),
		MaskedPaths:    n.masked,
		Features:       features,
	}
}

// HostIPs returns the node's addresses, the primary first: those of --node-ip, else of the interface that the default route leaves by, else the
// first global address, else loopback.
func (n *Node) HostIPs() []string {
	n.refresh()
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.ips)
}

// MaxPods returns how many pods the node takes: the config's maxPods, and no more than its podsPerCore allows.
func (n *Node) MaxPods() int { return int(n.capacity.Pods().Value()) }

// Capacity returns what the machine has.
func (n *Node) Capacity() v1.ResourceList { return n.capacity.DeepCopy() }

// Allocatable returns what a pod can have: capacity without the config's reservations and without what hard eviction keeps free. Memory that is set aside for huge
// pages is theirs.
func (n *Node) Allocatable() v1.ResourceList {
	out := n.Enforced()
	take(out, n.capacity, n.cfg.Kubelet.EvictionHard)
	for name, pages := range n.capacity {
		if strings.HasPrefix(string(name), v1.ResourceHugePagesPrefix) {
			subtract(out, v1.ResourceMemory, pages)
		}
	}
	return out
}

// Enforced returns what all pods together are held to by cgroups: capacity without the config's reservations.
func (n *Node) Enforced() v1.ResourceList {
	out := n.capacity.DeepCopy()
	reserve(out, n.cfg.Kubelet.SystemReserved)
	reserve(out, n.cfg.Kubelet.KubeReserved)
	return out
}

// HostsFile returns the content of /etc/hosts, empty where it cannot be read.
func (n *Node) HostsFile() []byte {
	n.refresh()
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.hosts
}

// refresh reads addresses and files again if they were read a while ago. A file that cannot be read now counts as it was read last.
func (n *Node) refresh() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.read.IsZero() && time.Since(n.read) < fresh {
		return
	}
	n.read = time.Now()
	n.ips = addresses(n.cfg.NodeIPs)
	if hosts, err := readFile("/etc/hosts"); err == nil {
		n.hosts = hosts
	}
	if path := n.cfg.Kubelet.ResolverConfig; path != nil && *path != "" {
		n.readResolvConf(*path)
	}
}

// readResolvConf reads the resolver configuration; n.mu is held.
func (n *Node) readResolvConf(path string) {
	content, err := readFile(path)
	if err != nil {
		n.complain("resolver configuration not read: pods get the name servers that were read last", path, err)
		if n.resolv == nil {
			n.resolv = &generate.ResolvConf{}
		}
		return
	}
	conf, err := generate.ParseResolvConf(content)
	if err != nil {
		n.complain("resolver configuration not understood in part", path, err)
	} else {
		n.complaint = ""
	}
	n.resolv = &conf
}

// complain says what is wrong with the resolver configuration, once.
func (n *Node) complain(message, path string, err error) {
	if text := message + err.Error(); text != n.complaint {
		n.complaint = text
		n.log.Warn(message, "path", path, "err", err)
	}
}
