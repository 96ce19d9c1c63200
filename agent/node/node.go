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
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/berthd/berth/agent/generate"
	"github.com/berthd/berth/configs"
)

// maxFile bounds the resolver and hosts files that are read.
const maxFile = 1 << 20

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
	log      *slog.Logger

	mu     sync.Mutex
	read   time.Time
	ips    []string
	resolv *generate.ResolvConf
	hosts  []byte
}

// New reads the machine's facts.
func New(cfg *configs.Config, log *slog.Logger) (*Node, error) {
	name, err := configs.NodeName(cfg)
	if err != nil {
		return nil, err
	}
	memory, err := MemoryCapacity()
	if err != nil {
		return nil, err
	}
	masked, err := filepath.Glob("/sys/devices/system/cpu/cpu*/thermal_throttle")
	if err != nil {
		return nil, fmt.Errorf("looking for thermal_throttle directories: %w", err)
	}
	n := &Node{Name: name, cfg: cfg, log: log, masked: masked}
	n.capacity = v1.ResourceList{
		v1.ResourceCPU:    *resource.NewQuantity(int64(runtime.NumCPU()), resource.DecimalSI),
		v1.ResourceMemory: *resource.NewQuantity(memory, resource.BinarySI),
		v1.ResourcePods:   *resource.NewQuantity(int64(cfg.Kubelet.MaxPods), resource.DecimalSI),
	}
	n.features = generate.Features{AppArmor: enabled("/sys/module/apparmor/parameters/enabled"), SELinux: exists("/sys/fs/selinux/enforce")}
	return n, nil
}

// SetRuntimeFeatures notes what the runtime can do, once it has said so.
func (n *Node) SetRuntimeFeatures(supplementalGroupsPolicy, recursiveReadOnly bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.features.SupplementalGroupsPolicy = supplementalGroupsPolicy
	n.features.RecursiveReadOnly = recursiveReadOnly
}

// Generate returns what translating a pod must know of the node.
func (n *Node) Generate() generate.Node {
	n.refresh()
	n.mu.Lock()
	defer n.mu.Unlock()
	k := &n.cfg.Kubelet
	return generate.Node{
		PodLogsDir:     k.PodLogsDir,
		DNS:            generate.NodeDNS{ClusterDNS: k.ClusterDNS, ClusterDomain: k.ClusterDomain, Resolv: n.resolv, NodeIPs: n.ips},
		SeccompDefault: k.SeccompDefault != nil && *k.SeccompDefault,
		SeccompRoot:    n.cfg.SeccompRoot(),
		MaskedPaths:    n.masked,
		Features:       n.features,
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

// Capacity returns what the machine has.
func (n *Node) Capacity() v1.ResourceList { return n.capacity.DeepCopy() }

// Allocatable returns what pods can have: capacity without the config's reservations.
func (n *Node) Allocatable() v1.ResourceList {
	out := n.capacity.DeepCopy()
	for _, reserved := range []map[string]string{n.cfg.Kubelet.SystemReserved, n.cfg.Kubelet.KubeReserved} {
		for name, amount := range reserved {
			q, err := resource.ParseQuantity(amount)
			if have, ok := out[v1.ResourceName(name)]; err == nil && ok {
				have.Sub(q)
				if have.Sign() < 0 {
					have.Set(0)
				}
				out[v1.ResourceName(name)] = have
			}
		}
	}
	return out
}

// HostsFile returns the content of /etc/hosts, empty where it cannot be read.
func (n *Node) HostsFile() []byte {
	n.refresh()
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.hosts
}

// refresh reads addresses and files again if they were read a while ago.
func (n *Node) refresh() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if time.Since(n.read) < fresh {
		return
	}
	n.read = time.Now()
	n.ips = n.addresses()
	if hosts, err := readFile("/etc/hosts"); err == nil {
		n.hosts = hosts
	}
	n.resolv = nil
	path := n.cfg.Kubelet.ResolverConfig
	if path == nil || *path == "" {
		return
	}
	content, err := readFile(*path)
	if err != nil {
		n.log.Warn("resolver configuration not read: pods get none of the node's name servers", "path", *path, "err", err)
		n.resolv = &generate.ResolvConf{}
		return
	}
	conf, err := generate.ParseResolvConf(content)
	if err != nil {
		n.log.Warn("resolver configuration not understood in part", "path", *path, "err", err)
	}
	n.resolv = &conf
}

// addresses returns the node's addresses as the config and the interfaces have them.
func (n *Node) addresses() []string {
	var out []string
	for _, ip := range n.cfg.NodeIPs {
		if !ip.IsUnspecified() {
			out = append(out, ip.String())
		}
	}
	if len(out) > 0 {
		return out
	}
	if ip, err := defaultRouteIP(); err == nil {
		return []string{ip.String()}
	}
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return []string{"127.0.0.1"}
	}
	for _, a := range addrs {
		if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr().IsGlobalUnicast() {
			return []string{p.Addr().String()}
		}
	}
	return []string{"127.0.0.1"}
}

// defaultRouteIP returns the IPv4 address of the interface that the default route leaves by (/proc/net/route, proc(5)).
func defaultRouteIP() (netip.Addr, error) {
	data, err := readFile("/proc/net/route")
	if err != nil {
		return netip.Addr{}, fmt.Errorf("reading the routes: %w", err)
	}
	for line := range strings.Lines(string(data)) {
		f := strings.Fields(line)
		if len(f) < 8 || f[1] != "00000000" || f[7] != "00000000" {
			continue
		}
		iface, err := net.InterfaceByName(f[0])
		if err != nil {
			continue
		}
		addrs, err := iface.Addrs()
		if err != nil {
			continue
		}
		for _, a := range addrs {
			if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr().Is4() {
				return p.Addr(), nil
			}
		}
	}
	return netip.Addr{}, os.ErrNotExist
}

// MemoryCapacity returns the machine's memory in bytes (/proc/meminfo, MemTotal).
func MemoryCapacity() (int64, error) {
	data, err := readFile("/proc/meminfo")
	if err != nil {
		return 0, fmt.Errorf("reading the machine's memory: %w", err)
	}
	for line := range strings.Lines(string(data)) {
		if rest, ok := strings.CutPrefix(line, "MemTotal:"); ok {
			kib, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
			if err != nil {
				return 0, fmt.Errorf("reading MemTotal: %w", err)
			}
			return kib << 10, nil
		}
	}
	return 0, fmt.Errorf("reading the machine's memory: /proc/meminfo has no MemTotal")
}

// readFile reads a file of at most maxFile bytes.
func readFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxFile))
}

func enabled(path string) bool {
	data, err := readFile(path)
	return err == nil && strings.TrimSpace(string(data)) == "Y"
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
