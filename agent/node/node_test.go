package node

import (
	"bytes"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/berthd/berth/configs"
)

func TestMemTotal(t *testing.T) {
	for text, want := range map[string]int64{
		"MemTotal:       16384256 kB\nMemFree: 1 kB\n": 16384256 << 10,
		"MemFree: 1 kB\nMemTotal: 1 kB":                1024,
		"MemTotal:12kB\n":                              12 << 10,
		"MemTotal: many kB\n":                          0,
		"MemTotal: -5 kB\n":                            0,
		"MemTotal: 99999999999999999999 kB\n":          0,
		"MemFree: 1 kB\n":                              0,
		"":                                             0,
	} {
		got, err := memTotal(text)
		if got != want || (err == nil) != (want != 0) {
			t.Errorf("%q: %d, %v; want %d", text, got, err, want)
		}
	}
}

func TestCountCPUs(t *testing.T) {
	for text, want := range map[string]int{
		"0\n":           1,
		"0-1\n":         2,
		"0-3,8,10-11\n": 7,
		"4-4":           1,
		"":              0,
		"\n":            0,
		"3-1":           0,
		"x":             0,
		"0-":            0,
		"0,,1":          0,
		"0-99999999":    0,
	} {
		if got := countCPUs(text); got != want {
			t.Errorf("%q: %d, want %d", text, got, want)
		}
	}
}

const routes4 = `Iface	Destination	Gateway 	Flags	RefCnt	Use	Metric	Mask		MTU	Window	IRTT
wlan0	00000000	0101A8C0	0003	0	0	600	00000000	0	0	0
eth1	00000000	0102A8C0	0003	0	0	100	00000000	0	0	0
down0	00000000	0102A8C0	0002	0	0	1	00000000	0	0	0
blackhole	00000000	00000000	0201	0	0	0	00000000	0	0	0
half0	00000000	00000000	0001	0	0	0	00000080	0	0	0
eth1	0002A8C0	00000000	0001	0	0	100	00FFFFFF	0	0	0
docker0	000011AC	00000000	0001	0	0	0	0000FFFF	0	0	0
odd0	00000000	0102A8C0	zz	0	0	1	00000000	0	0	0
odd1	00000000	0102A8C0	0003	0	0	low	00000000	0	0	0
short	00000000
`

const routes6 = `fe800000000000000000000000000000 40 00000000000000000000000000000000 00 00000000000000000000000000000000 00000100 00000001 00000000 00000001     eth1
00000000000000000000000000000000 00 00000000000000000000000000000000 00 fe800000000000000000000000000001 00000400 00000003 00000000 00000003     wlan0
00000000000000000000000000000000 00 00000000000000000000000000000000 00 fe800000000000000000000000000001 00000064 00000003 00000000 00000003     eth1
00000000000000000000000000000000 00 00000000000000000000000000000000 00 00000000000000000000000000000000 ffffffff 00000001 00000000 00200200       lo
00000000000000000000000000000000 00 00000000000000000000000000000000 00 00000000000000000000000000000000 00000001 00000001 00000000 00000001       lo
00000000000000000000000000000000 60 00000000000000000000000000000000 00 00000000000000000000000000000000 00000001 00000001 00000000 00000001     v4
`

func TestDefaultRoutes(t *testing.T) {
	if got := fmt.Sprint(defaultRoutes4(routes4)); got != "[eth1 wlan0]" {
		t.Errorf("IPv4: %s", got)
	}
	if got := fmt.Sprint(defaultRoutes6(routes6)); got != "[eth1 wlan0]" {
		t.Errorf("IPv6: %s", got)
	}
	for _, text := range []string{"", "\n\n", "\x00", strings.Repeat("x ", 100)} {
		if len(defaultRoutes4(text))+len(defaultRoutes6(text)) != 0 {
			t.Errorf("routes in %q", text)
		}
	}
}

func TestGlobal(t *testing.T) {
	var addrs []net.Addr
	for _, text := range []string{
		"127.0.0.1/8", "169.254.1.1/16", "fe80::1/64", "2001:db8::5/64", "192.168.2.7/24", "10.0.0.1/8",
	} {
		ip, n, err := net.ParseCIDR(text)
		if err != nil {
			t.Fatal(err)
		}
		addrs = append(addrs, &net.IPNet{IP: ip, Mask: n.Mask})
	}
	addrs = append([]net.Addr{&net.UnixAddr{Name: "odd"}}, addrs...)
	if ip, ok := global(addrs, netip.Addr.Is4); !ok || ip.String() != "192.168.2.7" {
		t.Errorf("IPv4: %s", ip)
	}
	if ip, ok := global(addrs, netip.Addr.Is6); !ok || ip.String() != "2001:db8::5" {
		t.Errorf("IPv6: %s", ip)
	}
	if _, ok := global(addrs[:4], netip.Addr.Is4); ok {
		t.Error("a local address counts as global")
	}
}

func TestAbsentAddresses(t *testing.T) {
	addrs := []net.Addr{
		&net.IPNet{IP: net.IPv4(192, 0, 2, 1), Mask: net.CIDRMask(24, 32)},
		&net.IPNet{IP: net.ParseIP("2001:db8::1"), Mask: net.CIDRMask(64, 128)},
	}
	for configured, want := range map[string]string{
		"192.0.2.1":        "",
		"::ffff:192.0.2.1": "",
		"2001:db8::1":      "",
		"0.0.0.0":          "",
		"::":               "",
		"192.0.2.2":        "192.0.2.2",
		"2001:db8::2":      "2001:db8::2",
	} {
		got := ""
		for _, ip := range absent([]netip.Addr{netip.MustParseAddr(configured)}, addrs) {
			got += ip.String()
		}
		if got != want {
			t.Errorf("%s: %q are on no interface, want %q", configured, got, want)
		}
	}
}

func TestConfiguredAddressesWin(t *testing.T) {
	configured := []netip.Addr{
		netip.MustParseAddr("0.0.0.0"), netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("::ffff:192.0.2.2"),
	}
	if got := fmt.Sprint(addresses(configured)); got != "[192.0.2.1 192.0.2.2]" {
		t.Errorf("addresses %s", got)
	}
	// On every machine, there is exactly one address, and it can be parsed.
	for _, c := range [][]netip.Addr{nil, {netip.IPv6Unspecified()}} {
		got := addresses(c)
		if len(got) != 1 {
			t.Fatalf("addresses %v", got)
		}
		if _, err := netip.ParseAddr(got[0]); err != nil {
			t.Error(err)
		}
	}
}

func TestStorageCapacity(t *testing.T) {
	dir := t.TempDir()
	here, err := storageCapacity(dir)
	if err != nil || here <= 0 {
		t.Fatalf("%d, %v", here, err)
	}
	if there, err := storageCapacity(filepath.Join(dir, "to", "be", "made")); err != nil || there != here {
		t.Errorf("%d, %v; want %d", there, err, here)
	}
	if _, err := storageCapacity(filepath.Join(dir, "nul\x00")); err == nil {
		t.Error("no error for an impossible path")
	}
}

func TestAllocatable(t *testing.T) {
	n := &Node{cfg: &configs.Config{}, capacity: v1.ResourceList{
		"cpu":               resource.MustParse("4"),
		"memory":            resource.MustParse("8Gi"),
		"ephemeral-storage": resource.MustParse("100Gi"),
		"pods":              resource.MustParse("110"),
	}}
	check := func(what string, got v1.ResourceList, want string) {
		t.Helper()
		var out []string
		for _, name := range []v1.ResourceName{"cpu", "memory", "ephemeral-storage", "pods"} {
			q := got[name]
			out = append(out, q.String())
		}
		if strings.Join(out, " ") != want {
			t.Errorf("%s: %q, want %s", what, out, want)
		}
		if _, pids := got[resourcePids]; len(got) != 4 && !pids || pids && what != "enforced" {
			t.Errorf("%s: %v", what, got)
		}
	}
	check("nothing reserved", n.Allocatable(), "4 8Gi 100Gi 110")
	k := &n.cfg.Kubelet
	k.SystemReserved = map[string]string{"cpu": "500m", "memory": "1Gi", "pid": "100", "odd": "x"}
	k.KubeReserved = map[string]string{"cpu": "500m", "ephemeral-storage": "200Gi", "memory": "nonsense"}
	check("enforced", n.Enforced(), "3 7Gi 0 110")
	k.EvictionHard = map[string]string{
		"memory.available":  "1Gi",
		"nodefs.available":  "10%",
		"imagefs.available": "15%",
		"nodefs.inodesFree": "5%",
	}
	check("allocatable", n.Allocatable(), "3 6Gi 0 110")
	k.KubeReserved = nil
	check("a share of the disk", n.Allocatable(), "3500m 6Gi 96636764000 110") // as a kubelet has it
	k.EvictionHard = map[string]string{"memory.available": "x%", "nodefs.available": "y"}
	check("nonsense", n.Allocatable(), "3500m 7Gi 100Gi 110")
	check("capacity", n.Capacity(), "4 8Gi 100Gi 110")
}

// What pods cannot have is what is reserved, and what hard eviction keeps free, to the byte as a
// kubelet has it: NUMA nodes have to keep exactly that much.
func TestAmounts(t *testing.T) {
	cfg := &configs.Config{}
	n := &Node{cfg: cfg, capacity: v1.ResourceList{v1.ResourceMemory: resource.MustParse("8Gi")}}
	for threshold, want := range map[string]string{
		"": "1536Mi", "0%": "1536Mi", "100%": "1536Mi", "100Mi": "1636Mi", "5%": "2040109472", "50%": "5632Mi",
	} {
		cfg.Kubelet.SystemReserved = map[string]string{"memory": "1Gi"}
		cfg.Kubelet.KubeReserved = map[string]string{"memory": "512Mi", "cpu": "1"}
		cfg.Kubelet.EvictionHard = nil
		if threshold != "" {
			cfg.Kubelet.EvictionHard = map[string]string{"memory.available": threshold}
		}
		capacity, withheld := n.Amounts()
		if got := withheld.Memory().String(); got != want || capacity.Memory().String() != "8Gi" || len(withheld) != 1 {
			t.Errorf("%q: %s of %v, want %s", threshold, got, capacity, want)
		}
	}
}

// What is kept from the pods may be all that the machine has, and no more.
func TestReservable(t *testing.T) {
	cfg := &configs.Config{}
	n := &Node{cfg: cfg, capacity: v1.ResourceList{
		"cpu": resource.MustParse("4"), "memory": resource.MustParse("8Gi"),
		"ephemeral-storage": resource.MustParse("100Gi"),
	}}
	for _, c := range []struct{ system, kube, hard map[string]string }{
		{},
		{
			map[string]string{"memory": "4Gi"},
			map[string]string{"memory": "3Gi"},
			map[string]string{"memory.available": "1Gi"},
		},
		{map[string]string{"pid": "999999999"}, nil, map[string]string{"memory.available": "100%"}},
	} {
		cfg.Kubelet.SystemReserved, cfg.Kubelet.KubeReserved, cfg.Kubelet.EvictionHard = c.system, c.kube, c.hard
		if err := n.reservable(); err != nil {
			t.Errorf("%v: %v", c, err)
		}
	}
	cfg.Kubelet.SystemReserved = map[string]string{"memory": "4Gi", "cpu": "4"}
	cfg.Kubelet.KubeReserved = map[string]string{"memory": "3Gi", "ephemeral-storage": "95Gi", "cpu": "1m"}
	cfg.Kubelet.EvictionHard = map[string]string{"memory.available": "1025Mi", "nodefs.available": "4%"}
	err := n.reservable()
	const want = "systemReserved, kubeReserved and evictionHard keep together 4001m of cpu, of which this machine has " +
		"4; 8193Mi of memory, of which this machine has 8Gi: lower them"
	if err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}

func TestReservedCPUs(t *testing.T) {
	cfg := &configs.Config{}
	n := &Node{cfg: cfg, capacity: v1.ResourceList{v1.ResourceCPU: resource.MustParse("8")}}
	cfg.Kubelet.SystemReserved = map[string]string{"cpu": "500m"}
	cfg.Kubelet.KubeReserved = map[string]string{"cpu": "2", "memory": "1Gi"}
	cfg.Kubelet.ReservedSystemCPUs = "0-1,4"
	system, kube := n.Reserved()
	allocatable := n.Allocatable()
	if got := fmt.Sprint(system.Cpu(), kube.Cpu(), kube.Memory(), allocatable.Cpu()); got != "3 0 1Gi 5" {
		t.Error(got)
	}
	for reserved, have := range map[string]string{"": "0-1\n", "0": "0-1\n", "1,3": "0-3\n", "0-7": "no list"} {
		if err := online(reserved, have); err != nil {
			t.Errorf("%q of %q: %v", reserved, have, err)
		}
	}
	err := online("0-4", "0-3\n")
	if want := "reservedSystemCPUs: 0-4 is not a subset of this machine's CPUs (0-3)"; err == nil || err.Error() != want {
		t.Errorf("%v", err)
	}
	if err := online("x", "0-3"); err == nil {
		t.Error("a list that is none")
	}
}

func TestMaxPids(t *testing.T) {
	dir := t.TempDir()
	if got := maxPids(dir); got != 0 {
		t.Errorf("without files %d", got)
	}
	for _, c := range []struct {
		file, text string
		want       int64
	}{
		{"pid_max", "4194304\n", 4194304},
		{"threads-max", "191000\n", 191000},
		{"pid_max", "32768\n", 32768},
		{"pid_max", "nonsense\n", 191000},
	} {
		if err := os.WriteFile(filepath.Join(dir, c.file), []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := maxPids(dir); got != c.want {
			t.Errorf("with %s of %q: %d, want %d", c.file, c.text, got, c.want)
		}
	}
}

// Memory that is reserved for huge pages is not allocatable.
func TestHugePages(t *testing.T) {
	dir := t.TempDir()
	for name, n := range map[string]string{
		"hugepages-2048kB":    "3\n",
		"hugepages-1048576kB": "1\n",
		"hugepages-64kB":      "many\n",
		"hugepages-xkB":       "1\n",
	} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name, "nr_hugepages"), []byte(n), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	pages := hugePages(dir)
	if small, large := pages["hugepages-2Mi"], pages["hugepages-1Gi"]; len(pages) != 2 || small.String() != "6Mi" ||
		large.String() != "1Gi" {
		t.Errorf("got %v", pages)
	}
	if got := hugePages(filepath.Join(dir, "nothing")); len(got) != 0 {
		t.Errorf("got %v", got)
	}
	pages["memory"] = resource.MustParse("8Gi")
	n := &Node{cfg: &configs.Config{}, capacity: pages}
	if got, enforced := n.Allocatable(), n.Enforced(); got.Memory().Value() != 7<<30-6<<20 ||
		enforced.Memory().Value() != 8<<30 {
		t.Errorf("allocatable %v, enforced %v", got, enforced)
	}
}

func TestResolverConfiguration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "resolv.conf")
		var log bytes.Buffer
		cfg := &configs.Config{}
		cfg.NodeIPs = []netip.Addr{netip.MustParseAddr("192.0.2.1")}
		cfg.Kubelet.ResolverConfig = &path
		n := &Node{cfg: cfg, log: slog.New(slog.NewTextHandler(&log, nil))}
		servers := func(want string) {
			t.Helper()
			resolv := n.Generate("").DNS.Resolv
			if resolv == nil || fmt.Sprint(resolv.Nameservers) != want {
				t.Errorf("resolver configuration %+v, want %s", resolv, want)
			}
		}
		write := func(text string) {
			t.Helper()
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		servers("[]")
		for range 5 {
			time.Sleep(2 * time.Second)
			servers("[]")
		}
		if got := strings.Count(log.String(), "not read"); got != 1 {
			t.Errorf("it complained %d times: %s", got, log.String())
		}
		write("nameserver 192.0.2.53\n")
		servers("[]") // not yet
		time.Sleep(fresh)
		servers("[192.0.2.53]")
		os.Remove(path)
		time.Sleep(fresh)
		servers("[192.0.2.53]")
		write("nameserver\nnameserver 192.0.2.54\n")
		time.Sleep(fresh)
		servers("[192.0.2.54]")
		if !strings.Contains(log.String(), "not understood") || strings.Count(log.String(), "not read") != 2 {
			t.Errorf("log: %s", log.String())
		}
		if got := fmt.Sprint(n.HostIPs()); got != "[192.0.2.1]" {
			t.Errorf("addresses %s", got)
		}
		empty := ""
		other := &Node{cfg: &configs.Config{}, log: n.log}
		other.cfg.Kubelet.ResolverConfig = &empty
		if other.Generate("").DNS.Resolv != nil {
			t.Error("a resolver configuration although none is wanted")
		}
	})
}

func TestNew(t *testing.T) {
	cfg := &configs.Config{}
	cfg.HostnameOverride, cfg.RootDir = "Node1", t.TempDir()
	cfg.Kubelet.MaxPods = 42
	cfg.Kubelet.PodLogsDir = "/var/log/pods"
	n, err := New(cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if n.Name != "node1" {
		t.Errorf("name %q", n.Name)
	}
	c := n.Capacity()
	for _, name := range []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory, v1.ResourceEphemeralStorage} {
		if q := c[name]; q.Sign() <= 0 {
			t.Errorf("capacity has %s %s", q.String(), name)
		}
	}
	off := false
	unlimited := *cfg
	unlimited.Kubelet.LocalStorageCapacityIsolation = &off
	if other, err := New(&unlimited, slog.New(slog.DiscardHandler)); err != nil {
		t.Error(err)
	} else if _, ok := other.Capacity()[v1.ResourceEphemeralStorage]; ok {
		t.Error("capacity has storage, whose isolation is switched off")
	}
	if pods := c[v1.ResourcePods]; pods.Value() != 42 {
		t.Errorf("capacity has %s pods", pods.String())
	}
	if a := n.Admission(); a.NoStrictGroups {
		t.Error("the runtime has not been asked and is taken to lack the policy Strict")
	}
	n.SetRuntimeFeatures(false, nil)
	if a := n.Admission(); !a.NoStrictGroups {
		t.Error("the runtime lacks the policy Strict and is taken to have it")
	}
	n.SetRuntimeFeatures(true, map[string]Handler{"": {true, true}, "vm": {}})
	if g := n.Generate(""); !g.Features.RecursiveReadOnly || !g.Features.SupplementalGroupsPolicy ||
		g.PodLogsDir != "/var/log/pods" || len(g.DNS.NodeIPs) != 1 {
		t.Errorf("for translating pods: %+v", g)
	}
	if n.Generate("vm").Features.RecursiveReadOnly || n.Generate("unknown").Features.RecursiveReadOnly {
		t.Error("a handler that cannot make mounts recursively read-only is taken to be able")
	}
	if !n.UserNamespaces("") || n.UserNamespaces("vm") || n.UserNamespaces("unknown") {
		t.Error("which handlers have user namespaces is not known")
	}
	if len(n.HostsFile()) == 0 {
		t.Log("this machine has no /etc/hosts")
	}
	cfg.NodeLabels = map[string]string{"disk": "ssd", v1.LabelHostname: "liar"}
	want := map[string]string{
		"disk":             "ssd",
		v1.LabelHostname:   "node1",
		v1.LabelOSStable:   runtime.GOOS,
		v1.LabelArchStable: runtime.GOARCH,
	}
	if a := n.Admission(); a.Name != "node1" || !maps.Equal(a.Labels, want) || len(cfg.NodeLabels) != 2 {
		t.Errorf("for admission: %+v", a)
	}
	cfg.Kubelet.AllowedUnsafeSysctls = []string{"vm.swappiness"}
	if _, err := New(cfg, slog.New(slog.DiscardHandler)); err == nil ||
		!strings.Contains(err.Error(), "allowedUnsafeSysctls: the sysctls") {
		t.Errorf("a sysctl of the whole node was taken: %v", err)
	}
	cfg.Kubelet.AllowedUnsafeSysctls, cfg.Kubelet.SystemReserved = nil, map[string]string{"memory": "1Ei"}
	if _, err := New(cfg, slog.New(slog.DiscardHandler)); err == nil ||
		!strings.Contains(err.Error(), "1Ei of memory, of which this machine has") {
		t.Errorf("more was reserved than the machine has: %v", err)
	}
	cfg.HostnameOverride, cfg.Kubelet.SystemReserved = "not a name", nil
	if _, err := New(cfg, slog.New(slog.DiscardHandler)); err == nil {
		t.Error("a bad node name was taken")
	}
}

func TestFiles(t *testing.T) {
	dir := t.TempDir()
	for content, want := range map[string]bool{"Y\n": true, "N\n": false, "": false} {
		path := filepath.Join(dir, "f")
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if enabled(path) != want || !exists(path) {
			t.Errorf("%q: %v", content, !want)
		}
	}
	if enabled(dir) || exists(filepath.Join(dir, "nothing")) {
		t.Error("what is not there is there")
	}
	big := filepath.Join(dir, "big")
	if err := os.WriteFile(big, make([]byte, maxFile+10), 0o600); err != nil {
		t.Fatal(err)
	}
	if data, err := readFile(big); err != nil || len(data) != maxFile {
		t.Errorf("%d bytes, %v", len(data), err)
	}
}
