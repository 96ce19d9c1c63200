package choose

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/utils/cpuset"
)

// layout makes a machine: outer groups of inner groups of cores of threads. The outer groups are
// NUMA nodes, or else sockets. The second threads of all cores come after the first ones.
func layout(outer, inner, cores, threads, caches int, nodesOutside bool) Machine {
	var out Machine
	half := outer * inner * cores
	for at := range half * threads {
		c := CPU{ID: at, Core: at % half}
		group := c.Core / cores
		c.Socket, c.Node = group/inner, group
		if nodesOutside {
			c.Socket, c.Node = group, group/inner
		}
		c.Cache = group*caches + c.Core%cores*caches/cores
		out = append(out, c)
	}
	return out
}

// chosen are what a kubelet 1.36.3 chooses on machines of these layouts: from which CPUs, how many,
// and which.
var chosen = []struct {
	outer, inner, cores, threads, caches int
	nodesOutside                         bool
	from, want                           string
}{
	{1, 3, 2, 1, 2, true, "1,3-5 1 by cache", "1"},
	{1, 1, 4, 1, 2, false, "0-3 4", "0-3"},
	{1, 2, 4, 2, 1, false, "0-5,7-10,12-13,15 1 spread", "0"},
	{2, 3, 5, 1, 1, false, "0-1,5,7,9-10,13,15-16,18-22,27 7", "0-1,5,7,9-10,13"},
	{2, 3, 6, 1, 1, false, "0-1,4-15,18,20,22-24,26-31,33-35 14 by cache", "0-1,4-15"},
	{3, 2, 4, 1, 2, false, "0-3,6-9,11,13,16-22 15", "0-3,6-8,13,16-22"},
	{2, 2, 3, 1, 1, false, "0-7,9-11 7 by cache", "0-6"},
	{3, 2, 1, 1, 1, false, "0-5 5", "0-4"},
	{3, 2, 3, 2, 1, true, "0-4,6-10,12-13,15,17-18,22-29,31-33,35 14 spread", "0-2,6-10,24-29"},
	{2, 1, 6, 2, 2, false, "0-3,5-7,9,11-18,20,22-23 1 by cache", "6"},
	{3, 1, 2, 1, 2, true, "0,2-5 5 spread", "0,2-5"},
	{3, 3, 3, 2, 1, false, "0,2,4-18,20-26,28,30-37,39-47,49-50,52 27 spread", "0,2,4-17,33-37,39-44"},
	{2, 1, 3, 2, 1, false, "0,2,5-6,8,11 4", "0,5-6,11"},
	{1, 1, 5, 1, 1, false, "0,2-4 4 by cache", "0,2-4"},
	{3, 2, 6, 1, 2, false, "1,3-13,15-17,20-24,26-31,33-35 11", "1,3-11,20"},
	{4, 3, 2, 2, 1, true, "0-1,3,7,11-13,15,17-18,26,31,33,35,40-42,45,47 6 over nodes", "12-13,15,17,40-41"},
	{
		4, 2, 2, 2, 1, true, "0-1,3,5,8,10,12-14,17,19-20,23-25,27,30-31 15 over nodes",
		"0-1,3,8,10,12-14,17,19,24-25,27,30-31",
	},
	{3, 1, 4, 2, 1, true, "0-4,8,11-12,15,18,20 4 over nodes", "0,3,12,15"},
	{3, 1, 6, 1, 1, false, "0-2,4-5,8-9,12-17 12 over nodes in whole cores", "0-2,4,8-9,12-17"},
	{3, 1, 5, 2, 1, true, "0-29 25 over nodes in whole cores", "0-12,15-26"},
	{1, 3, 2, 2, 1, false, "0-6,8-11 6 over nodes", "2-5,8,10"},
	{3, 2, 3, 2, 1, true, "1,3,5-6,8,10,12,14-19,21-24,28,30-31,34-35 11 over nodes", "1,3,12,14,16,18-19,21,30-31,34"},
	{
		4, 3, 4, 2, 1, true, "0-2,4-7,9-24,26-27,29-40,42-43,46,48-50,52-55,57-72,74-75,77-88,90-91,94 14 " +
			"over nodes in whole cores", "12-18,60-66",
	},
}

func TestTakesWhatAKubeletTakes(t *testing.T) {
	for _, c := range chosen {
		m := layout(c.outer, c.inner, c.cores, c.threads, c.caches, c.nodesOutside)
		var from string
		var count int
		if _, err := fmt.Sscan(c.from, &from, &count); err != nil {
			t.Fatal(err)
		}
		available, err := cpuset.Parse(from)
		if err != nil {
			t.Fatal(err)
		}
		o := Options{
			Spread: strings.HasSuffix(c.from, "spread"), ByCache: strings.HasSuffix(c.from, "by cache"),
			OverNodes: strings.Contains(c.from, "over nodes"), WholeCores: strings.HasSuffix(c.from, "whole cores"),
		}
		got, err := m.Take(available, count, o)
		if err != nil || got.String() != c.want {
			t.Errorf("%+v: %s, %v", c, got, err)
		}
	}
}

// On any machine, CPUs that are spread over NUMA nodes are as many as were asked for, and free.
// They come from one node if one has enough. If all nodes have an equal part, none that gives CPUs
// gives fewer. Whole cores stay whole.
func TestSpreadOverNodes(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 3000 {
		count, inner, cores, threads := 1+r.IntN(6), 1+r.IntN(2), 1+r.IntN(5), 1+r.IntN(2)
		m := layout(count, inner, cores, threads, 1, true)
		o := Options{OverNodes: true, WholeCores: r.IntN(2) == 0}
		share := r.Float64()
		busy := m.set(func(CPU) bool { return r.Float64() > share })
		if o.WholeCores {
			busy = m.Cores(busy)
		}
		free := m.Set().Difference(busy)
		if free.IsEmpty() {
			continue
		}
		needed := 1 + r.IntN(free.Size())
		got, err := m.Take(free, needed, o)
		if err != nil || got.Size() != needed || !got.IsSubsetOf(free) {
			t.Fatalf("%d of %s on %v: %s, %v", needed, free, m, got, err)
		}
		checkParts(t, m, free, got, o)
	}
}

func checkParts(t *testing.T, m Machine, free, got cpuset.CPUSet, o Options) {
	t.Helper()
	group, parts := m.group(o), map[int]int{}
	for _, c := range m.only(got) {
		parts[c.Node]++
	}
	enough, fewest := false, len(m)
	for _, g := range m.only(free).groups(node) {
		enough = enough || len(g.cpus) >= got.Size()
		fewest = min(fewest, len(g.cpus))
	}
	if got.Size()%group != 0 {
		return
	}
	if enough && len(parts) > 1 {
		t.Errorf("one node has %d of %s, and %s was taken", got.Size(), free, got)
	}
	equal := got.Size() / len(parts) / group * group
	for n, part := range parts {
		if !enough && fewest >= equal && part < equal {
			t.Errorf("%d of %s: node %d gives %d, an equal part is %d", got.Size(), free, n, part, equal)
		}
	}
	if o.WholeCores && !m.Cores(got).Equals(got) {
		t.Errorf("%d of %s: %s are not whole cores", got.Size(), free, got)
	}
}

// Of many nodes, those give CPUs that leave the machine most even.
func TestSpreadOverManyNodes(t *testing.T) {
	m := layout(8, 1, 4, 1, 1, true)
	free := m.Set().Difference(cpuset.New(0, 1, 2, 3, 7)) // node 0 has none, node 1 has three
	for needed, want := range map[int]string{
		3: "8-10", 4: "8-11", 16: "8-23", 18: "8-22,24-26", 25: "4-6,8-26,28-30",
	} {
		if got, err := m.Take(free, needed, Options{OverNodes: true}); err != nil || got.String() != want {
			t.Errorf("%d: %s, %v, want %s", needed, got, err, want)
		}
	}
}

func TestTooFew(t *testing.T) {
	_, err := layout(1, 1, 2, 1, 1, false).Take(cpuset.New(0, 7), 2, Options{})
	few := (*TooFew)(nil)
	if !errors.As(err, &few) ||
		err.Error() != "not enough cpus available to satisfy request: requested=2, available=1" {
		t.Error(err)
	}
}

func TestCores(t *testing.T) {
	m := layout(1, 1, 4, 2, 1, false)
	if got := m.Cores(cpuset.New(1, 6)); m.PerCore() != 2 || got.String() != "1-2,5-6" {
		t.Errorf("%d CPUs in a core, cores %s", m.PerCore(), got)
	}
}

// write makes a directory as the kernel's.
func write(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestRead(t *testing.T) {
	files := map[string]string{
		"cpu/online": "0-1,3", "node/node0/cpulist": "0,2", "node/node1/cpulist": "1,3", "node/nodes": "x",
		"cpu/cpu0/topology/thread_siblings_list": "0,2", "cpu/cpu0/topology/physical_package_id": "-1",
		"cpu/cpu1/topology/thread_siblings_list": "1,3", "cpu/cpu1/topology/physical_package_id": "1",
		"cpu/cpu3/topology/thread_siblings_list": "1,3", "cpu/cpu3/topology/physical_package_id": "1",
		"cpu/cpu1/cache/index3/id": "7",
	}
	got, err := Read(write(t, files))
	want := Machine{
		{ID: 0}, {ID: 1, Core: 1, Socket: 1, Node: 1, Cache: 7}, {ID: 3, Core: 1, Socket: 1, Node: 1, Cache: 1},
	}
	if err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%v, %v, want %v", got, err, want)
	}
	for broken, text := range map[string]string{
		"cpu/online": "x", "node/node0/cpulist": "x", "cpu/cpu0/topology/thread_siblings_list": "x",
		"cpu/cpu1/topology/physical_package_id": "x",
	} {
		was := files[broken]
		files[broken] = text
		if _, err := Read(write(t, files)); err == nil {
			t.Errorf("%s is %q, and nobody says so", broken, text)
		}
		files[broken] = was
	}
}

// This machine can be read.
func TestReadThisMachine(t *testing.T) {
	m, err := Read("/sys/devices/system")
	if err != nil || len(m) == 0 || m.PerCore() == 0 {
		t.Errorf("%v, %v", m, err)
	}
}
