// Package choose chooses CPUs for a container, by where they are in the machine.
//
// Purpose: [Machine.Take] is the choice of a kubelet's static CPU manager (release 1.36): whole
// NUMA nodes and sockets first, then whole cores, then single CPUs, and of two the one with less
// left.
// [Read] reads where the CPUs are.
//
// Truth owned: none; the machine's layout is the kernel's.
//
// Concurrency: all functions but Read are pure.
package choose

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"k8s.io/utils/cpuset"
)

// CPU is one CPU and where it is. Core is the smallest CPU of its core.
type CPU struct{ ID, Core, Socket, Node, Cache int }

// Machine are the CPUs of a machine, sorted.
type Machine []CPU

// Set returns all CPUs.
func (m Machine) Set() cpuset.CPUSet { return m.set(func(CPU) bool { return true }) }

func (m Machine) set(has func(CPU) bool) cpuset.CPUSet {
	var ids []int
	for _, c := range m {
		if has(c) {
			ids = append(ids, c.ID)
		}
	}
	return cpuset.New(ids...)
}

// only returns the CPUs that are in a set.
func (m Machine) only(in cpuset.CPUSet) Machine {
	return slices.DeleteFunc(slices.Clone(m), func(c CPU) bool { return !in.Contains(c.ID) })
}

// PerCore is how many CPUs a core has.
func (m Machine) PerCore() int { return len(m) / max(1, m.count(core)) }

// Groups returns how many sockets and NUMA nodes the machine has.
func (m Machine) Groups() (sockets, nodes int) { return m.count(socket), m.count(node) }

// count returns how many different groups the CPUs are in.
func (m Machine) count(of level) int {
	seen := map[int]bool{}
	for _, c := range m {
		seen[of(c)] = true
	}
	return len(seen)
}

// Cores returns the CPUs of all cores that have one of these CPUs.
func (m Machine) Cores(of cpuset.CPUSet) cpuset.CPUSet {
	cores := map[int]bool{}
	for _, c := range m.only(of) {
		cores[c.Core] = true
	}
	return m.set(func(c CPU) bool { return cores[c.Core] })
}

// level is a kind of group that CPUs are in.
type level func(CPU) int

func core(c CPU) int   { return c.Core }
func socket(c CPU) int { return c.Socket }
func node(c CPU) int   { return c.Node }
func cache(c CPU) int  { return c.Cache }

// Read reads where the machine's online CPUs are from the kernel's directory, /sys/devices/system.
func Read(dir string) (Machine, error) {
	online, err := list(filepath.Join(dir, "cpu/online"))
	if err != nil {
		return nil, fmt.Errorf("reading the machine's CPUs: %w", err)
	}
	nodes, err := numaNodes(dir)
	if err != nil {
		return nil, fmt.Errorf("reading the machine's NUMA nodes: %w", err)
	}
	var out Machine
	for _, id := range online.List() {
		path := filepath.Join(dir, "cpu", "cpu"+strconv.Itoa(id))
		siblings, err := list(filepath.Join(path, "topology/thread_siblings_list"))
		if err != nil {
			return nil, fmt.Errorf("reading the core of CPU %d: %w", id, err)
		}
		c := CPU{ID: id, Core: id, Node: nodes[id]}
		if siblings = siblings.Intersection(online); siblings.Size() > 0 {
			c.Core = siblings.List()[0]
		}
		if c.Socket, err = number(filepath.Join(path, "topology/physical_package_id")); err != nil {
			return nil, fmt.Errorf("reading the socket of CPU %d: %w", id, err)
		}
		c.Socket = max(c.Socket, 0) // the kernel says -1 where it does not know
		if c.Cache, err = number(filepath.Join(path, "cache/index3/id")); err != nil {
			c.Cache = c.Socket // many machines, virtual ones above all, do not tell
		}
		out = append(out, c)
	}
	return out, nil
}

// numaNodes returns the NUMA node of each CPU. A kernel without NUMA has no nodes.
func numaNodes(dir string) (map[int]int, error) {
	dirs, err := filepath.Glob(filepath.Join(dir, "node/node[0-9]*"))
	if err != nil {
		return nil, err
	}
	out := map[int]int{}
	for _, path := range dirs {
		id, err := strconv.Atoi(strings.TrimPrefix(filepath.Base(path), "node"))
		if err != nil {
			continue
		}
		cpus, err := list(filepath.Join(path, "cpulist"))
		if err != nil {
			return nil, err
		}
		for _, cpu := range cpus.List() {
			out[cpu] = id
		}
	}
	return out, nil
}

func list(path string) (cpuset.CPUSet, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return cpuset.CPUSet{}, err
	}
	return cpuset.Parse(strings.TrimSpace(string(data)))
}

func number(path string) (int, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(data)))
}

// group are the CPUs of a list that are in one group.
type group struct {
	id   int
	cpus Machine
}

// groups returns the groups that the CPUs are in: the smallest first, and of two of one size that
// with the lower number.
func (m Machine) groups(of level) []group {
	byID := map[int]Machine{}
	for _, c := range m {
		byID[of(c)] = append(byID[of(c)], c)
	}
	var out []group
	for id, cpus := range byID {
		out = append(out, group{id, cpus})
	}
	slices.SortFunc(out, func(a, b group) int {
		return cmp.Or(cmp.Compare(len(a.cpus), len(b.cpus)), cmp.Compare(a.id, b.id))
	})
	return out
}

// within returns the groups of the last level, ordered by the levels before.
func (m Machine) within(levels ...level) []group {
	if len(levels) == 1 {
		return m.groups(levels[0])
	}
	var out []group
	for _, g := range m.groups(levels[0]) {
		out = append(out, g.cpus.within(levels[1:]...)...)
	}
	return out
}
