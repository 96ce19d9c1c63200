package topology

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"k8s.io/utils/cpuset"

	"github.com/berthd/berth/configs"
)

// MostNodes is how many NUMA nodes a machine may have, if the config does not allow more. With more
// nodes, the number of their subsets explodes. The value is the kubelet's.
const MostNodes = 8

// System is the kernel's directory about the machine.
const System = "/sys/devices/system"

// ConfigFrom returns the policy of a node. system is the kernel's directory about the machine.
func ConfigFrom(cfg *configs.Config, system string) (*Policy, error) {
	k := &cfg.Kubelet
	p := &Policy{Name: k.TopologyManagerPolicy, ByPod: k.TopologyManagerScope == scopePod}
	if !p.Aligns() {
		return p, nil
	}
	closest, most, err := options(k.TopologyManagerPolicyOptions)
	if err != nil {
		return nil, err
	}
	nodes, err := Nodes(system)
	if err != nil {
		return nil, err
	}
	if len(nodes) > most {
		return nil, fmt.Errorf("topologyManagerPolicy %s: unsupported on machines with more than %d NUMA nodes; this one "+
			"has %d", p.Name, most, len(nodes))
	}
	p.Nodes = MaskOf(nodes...)
	if closest {
		p.Distances, err = distances(system, nodes)
	}
	return p, err
}

// options reads the policy's options.
func options(given map[string]string) (closest bool, most int, err error) {
	most = MostNodes
	for _, name := range slices.Sorted(maps.Keys(given)) {
		switch field := "topologyManagerPolicyOptions." + name; name {
		case "prefer-closest-numa-nodes":
			if closest, err = strconv.ParseBool(given[name]); err != nil {
				return false, 0, fmt.Errorf("%s: %w", field, err)
			}
		case "max-allowable-numa-nodes":
			if most, err = strconv.Atoi(given[name]); err != nil {
				return false, 0, fmt.Errorf("%s: %w", field, err)
			}
			if most < MostNodes {
				return false, 0, fmt.Errorf("%s: %d must be at least %d", field, most, MostNodes)
			}
		default:
			return false, 0, fmt.Errorf("%s: there is no such option", field)
		}
	}
	return closest, most, nil
}

// Nodes returns the machine's NUMA nodes that are online. A kernel without NUMA has the node 0.
func Nodes(system string) ([]int, error) {
	data, err := os.ReadFile(filepath.Join(system, "node/online"))
	if os.IsNotExist(err) {
		return []int{0}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the machine's NUMA nodes: %w", err)
	}
	set, err := cpuset.Parse(strings.TrimSpace(string(data)))
	if err != nil {
		return nil, fmt.Errorf("reading the machine's NUMA nodes: %w", err)
	}
	return set.List(), nil
}

// distances returns how far the nodes are from each other. The kernel lists the distances to the
// nodes that are online, in their order.
func distances(system string, nodes []int) (map[int][]int, error) {
	out := map[int][]int{}
	for _, from := range nodes {
		data, err := os.ReadFile(filepath.Join(system, "node", "node"+strconv.Itoa(from), "distance"))
		if err != nil {
			return nil, fmt.Errorf("topologyManagerPolicyOptions.prefer-closest-numa-nodes: reading how far the NUMA nodes "+
				"are from each other: %w", err)
		}
		row := make([]int, nodes[len(nodes)-1]+1)
		fields := strings.Fields(string(data))
		if len(fields) != len(nodes) {
			return nil, fmt.Errorf("the kernel has %d distances from NUMA node %d, but %d nodes", len(fields), from,
				len(nodes))
		}
		for i, to := range nodes {
			if row[to], err = strconv.Atoi(fields[i]); err != nil {
				return nil, fmt.Errorf("reading how far NUMA node %d is from %d: %w", from, to, err)
			}
		}
		out[from] = row
	}
	return out, nil
}
