// Package node knows the machine that the agent runs on.
//
// Purpose: the node's name, addresses, capacity, resolver and hosts files, and kernel features, for
// pods and their steps.
//
// Truth owned: the node's facts. Addresses and files can change while the agent runs: they are read
// again, at most once a second.
//
// Concurrency: a [Node] is safe for concurrent use.
package node

import (
	"context"
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
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/cpuset"

	"github.com/berthd/berth/agent/node/admit"
	"github.com/berthd/berth/agent/node/eviction"
	"github.com/berthd/berth/agent/pod/generate"
	"github.com/berthd/berth/configs"
)

// fresh is how long addresses and files count as current after they were read.
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
	// handlers is what each runtime handler supports, by the handler's name. The empty name is the
	// runtime's default handler.
	handlers map[string]Handler
	// podSecurity is the Pod Security Standard that pods must meet.
	podSecurity string
	// object is the Node object; nil if there is none. Nobody changes it.
	object *v1.Node
	// reread reads the Node object anew; nil without a cluster.
	reread func(ctx context.Context)
	// devices are the devices of device plugins; nil without these.
	devices Devices
	// known says that the runtime has reported its features.
	known  bool
	read   time.Time
	ips    []string
	resolv *generate.ResolvConf
	hosts  []byte
	// logged is the last failure of the resolver configuration that was logged, so that each is
	// logged once.
	logged string
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
	if cpus, err := readFile(onlineCPUs); err == nil {
		if err := online(cfg.Kubelet.ReservedSystemCPUs, string(cpus)); err != nil {
			return nil, err
		}
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
	n := &Node{
		Name:        name,
		sysctls:     sysctls,
		declared:    features,
		cfg:         cfg,
		capacity:    capacity,
		log:         log,
		masked:      masked,
		podSecurity: string(cfg.Berth.PodSecurity),
	}
	if err := n.reservable(); err != nil {
		return nil, err
	}
	n.features = generate.Features{
		AppArmor: enabled("/sys/module/apparmor/parameters/enabled"), SELinux: exists("/sys/fs/selinux/enforce"),
	}
	return n, nil
}

// Handler is what a runtime handler supports: recursively read-only mounts, and user namespaces for
// pods.
type Handler struct {
	RecursiveReadOnly, UserNamespaces bool
}

// SetRuntimeFeatures records what the runtime supports. handlers has an entry for each handler, by
// its name.
func (n *Node) SetRuntimeFeatures(supplementalGroupsPolicy bool, handlers map[string]Handler) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.features.SupplementalGroupsPolicy = supplementalGroupsPolicy
	n.handlers = maps.Clone(handlers)
	n.known = true
}

// SetPodSecurity sets the Pod Security Standard for pods that are admitted from now on. Admitted
// pods stay.
func (n *Node) SetPodSecurity(standard string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.podSecurity = standard
}

// UserNamespaces reports whether a runtime handler supports user namespaces for pods. The empty
// name is the runtime's default handler.
func (n *Node) UserNamespaces(handler string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.handlers[handler].UserNamespaces
}

// Admission returns the facts that admission needs. Until the runtime has reported its features,
// admission assumes that the runtime supports all: a rejection is final, and the features are
// checked again when the pod's config is generated.
func (n *Node) Admission() admit.Node {
	n.mu.Lock()
	defer n.mu.Unlock()
	var taints []v1.Taint
	if n.object != nil {
		taints = n.object.Spec.Taints
	}
	return admit.Node{
		Name:            n.Name,
		Labels:          n.labels(),
		Taints:          taints,
		TaintComparison: n.cfg.GateEnabled("TaintTolerationComparisonOperators"),
		AppArmor:        n.features.AppArmor,
		NoStrictGroups:  n.known && !n.features.SupplementalGroupsPolicy,
		Sysctls:         n.sysctls,
		PodSecurity:     n.podSecurity,
		Declared:        n.declared,
		ByClaim:         n.cfg.GateEnabled("DRAExtendedResource"),
	}
}

// labels returns the node's labels: those that every node has, and the config's or the API
// server's.
func (n *Node) labels() map[string]string {
	var out map[string]string
	if n.object != nil {
		out = maps.Clone(n.object.Labels)
	}
	if out == nil {
		out = maps.Clone(n.cfg.NodeLabels)
	}
	if out == nil {
		out = map[string]string{}
	}
	out[v1.LabelHostname], out[v1.LabelOSStable], out[v1.LabelArchStable] = n.Name, runtime.GOOS, runtime.GOARCH
	return out
}

// Generate returns the facts that the translation of a pod needs. handler is the pod's runtime
// handler; empty means the runtime's default handler.
func (n *Node) Generate(handler string) generate.Node {
	n.refresh()
	n.mu.Lock()
	defer n.mu.Unlock()
	k := &n.cfg.Kubelet
	features := n.features
	features.RecursiveReadOnly = n.handlers[handler].RecursiveReadOnly
	return generate.Node{
		PodLogsDir: k.PodLogsDir,
		DNS: generate.NodeDNS{
			ClusterDNS:    k.ClusterDNS,
			ClusterDomain: k.ClusterDomain,
			Cluster:       n.cfg.Kubeconfig != "",
			Resolv:        n.resolv,
			NodeIPs:       n.ips,
		},
		SeccompDefault:     k.SeccompDefault != nil && *k.SeccompDefault,
		SeccompRoot:        n.cfg.SeccompRoot(),
		RuntimeAnnotations: n.cfg.Berth.RuntimeAnnotations,
		MaskedPaths:        n.masked,
		Features:           features,
	}
}

// HostIPs returns the node's addresses, the primary address first. They are those of --node-ip;
// without those, the address of the interface of the default route; without that, the first global
// address, or loopback.
func (n *Node) HostIPs() []string {
	n.refresh()
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.ips)
}

// MaxPods returns how many pods the node runs at most: the config's maxPods, but not more than its
// podsPerCore allows.
func (n *Node) MaxPods() int { return int(n.capacity.Pods().Value()) }

// Capacity returns the machine's capacity.
func (n *Node) Capacity() v1.ResourceList { return n.capacity.DeepCopy() }

// Allocatable returns what pods can request: the capacity without the config's reservations,
// without what hard eviction keeps free, and without memory that is reserved for huge pages.
func (n *Node) Allocatable() v1.ResourceList {
	out := n.Enforced()
	delete(out, resourcePids) // no pod requests them
	take(out, eviction.Kept(n.cfg.Kubelet.EvictionHard, n.capacity))
	for name, pages := range n.capacity {
		if strings.HasPrefix(string(name), v1.ResourceHugePagesPrefix) {
			subtract(out, v1.ResourceMemory, pages)
		}
	}
	return out
}

// AllocatableOf returns what pods could request on this machine of an agent with this config.
func AllocatableOf(cfg *configs.Config) (v1.ResourceList, error) {
	capacity, err := capacity(cfg)
	if err != nil {
		return nil, err
	}
	return (&Node{cfg: cfg, capacity: capacity}).Allocatable(), nil
}

// Enforced returns the cgroup limits of all pods together: the capacity without the config's
// reservations. It has process ids ("pid") only if some are reserved.
func (n *Node) Enforced() v1.ResourceList {
	out := n.capacity.DeepCopy()
	system, kube := n.Reserved()
	_, systemPids := system[resourcePids]
	if _, kubePids := kube[resourcePids]; systemPids || kubePids {
		out[resourcePids] = *resource.NewQuantity(maxPids("/proc/sys/kernel"), resource.DecimalSI)
	}
	take(out, system)
	take(out, kube)
	return out
}

// Reserved returns the amounts that the config keeps from the pods: for the services of the
// system, and for those of Kubernetes. The CPUs of reservedSystemCPUs count as the system's, in
// the place of both amounts of cpu, as on a kubelet.
func (n *Node) Reserved() (system, kube v1.ResourceList) {
	k := &n.cfg.Kubelet
	system, kube = amounts(k.SystemReserved), amounts(k.KubeReserved)
	if cpus, err := cpuset.Parse(k.ReservedSystemCPUs); err == nil && cpus.Size() > 0 {
		system[v1.ResourceCPU] = *resource.NewQuantity(int64(cpus.Size()), resource.DecimalSI)
		delete(kube, v1.ResourceCPU)
	}
	return system, kube
}

// ReservedCPUs returns the CPUs that the config keeps for the system, as "0-1,4"; empty for none.
func (n *Node) ReservedCPUs() string { return n.cfg.Kubelet.ReservedSystemCPUs }

// HostsFile returns the content of /etc/hosts; empty if it cannot be read.
func (n *Node) HostsFile() []byte {
	n.refresh()
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.hosts
}

// refresh reads addresses and files again if the last read is older than [fresh]. If a file cannot
// be read now, its last content counts.
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
		n.logOnce("resolver configuration not read: pods get the name servers that were read last", path, err)
		if n.resolv == nil {
			n.resolv = &generate.ResolvConf{}
		}
		return
	}
	conf, err := generate.ParseResolvConf(content)
	if err != nil {
		n.logOnce("resolver configuration not understood in part", path, err)
	} else {
		n.logged = ""
	}
	n.resolv = &conf
}

// logOnce logs what is wrong with the resolver configuration, unless that was the last failure
// logged.
func (n *Node) logOnce(message, path string, err error) {
	if text := message + err.Error(); text != n.logged {
		n.logged = text
		n.log.Warn(message, "path", path, "err", err)
	}
}
