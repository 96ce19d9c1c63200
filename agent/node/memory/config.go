package memory

import (
	"errors"
	"fmt"
	"path/filepath"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	kubeletconfigv1beta1 "k8s.io/kubelet/config/v1beta1"

	"github.com/berthd/berth/agent/node/memory/state"
	"github.com/berthd/berth/agent/node/podlevel"
	"github.com/berthd/berth/agent/node/topology"
	"github.com/berthd/berth/configs"
)

// policyStatic is the name of the policy that gives memory out.
const policyStatic = kubeletconfigv1beta1.StaticMemoryManagerPolicy

// Config configures a [Manager].
type Config struct {
	Policy string
	// Rules are those for pods with resources of their own.
	Rules podlevel.Rules
	// File is the path of the state file.
	File string
	// Machine has what the NUMA nodes have, Reserved what of it is kept for the system.
	Machine, Reserved Machine
}

// ConfigFrom returns the config of a node. system is the kernel's directory about the machine. node
// returns what the node has, and what of it pods cannot have: what is reserved, and what hard
// eviction keeps free.
func ConfigFrom(
	cfg *configs.Config, system string, node func() (capacity, withheld v1.ResourceList),
) (Config, error) {
	k := &cfg.Kubelet
	out := Config{Policy: k.MemoryManagerPolicy, File: File(cfg.RootDir)}
	if out.Policy != policyStatic {
		return out, nil
	}
	capacity, withheld := node()
	var err error
	if out.Machine, err = Read(system, capacity); err != nil {
		return out, err
	}
	// A policy that aligns has its own bound.
	aligns := (&topology.Policy{Name: k.TopologyManagerPolicy}).Aligns()
	if n := len(out.Machine); !aligns && n > topology.MostNodes {
		return out, fmt.Errorf("memoryManagerPolicy %s: unsupported on machines with more than %d NUMA nodes; this one "+
			"has %d", out.Policy, topology.MostNodes, n)
	}
	out.Reserved, err = reserved(k.ReservedMemory, out.Machine, withheld)
	return out, err
}

// reserved reads reservedMemory. Together, the NUMA nodes have to keep exactly as much as the node.
func reserved(
	list []kubeletconfigv1beta1.MemoryReservation, machine Machine, withheld v1.ResourceList,
) (Machine, error) {
	out, total := Machine{}, v1.ResourceList{}
	for i, r := range list {
		n := int(r.NumaNode)
		if machine[n] == nil {
			return nil, fmt.Errorf("reservedMemory[%d].numaNode: this machine has no NUMA node %d", i, n)
		}
		if out[n] == nil {
			out[n] = amounts{}
		}
		for name, amount := range r.Limits {
			out[n][name] = uint64(amount.Value())
			sum := total[name]
			sum.Add(amount)
			total[name] = sum
		}
	}
	for name := range withheld {
		if _, named := total[name]; isMemory(name) && !named {
			total[name] = resource.Quantity{}
		}
	}
	for name, sum := range total {
		if want := withheld[name]; sum.Cmp(want) != 0 {
			return nil, fmt.Errorf("reservedMemory: the NUMA nodes keep %s of %s together, but systemReserved, kubeReserved "+
				"and evictionHard keep %s", sum.String(), name, want.String())
		}
	}
	if memory := total[v1.ResourceMemory]; memory.IsZero() {
		return nil, errors.New("memoryManagerPolicy Static: some memory must be reserved for the system: set " +
			"reservedMemory, and systemReserved.memory, kubeReserved.memory or evictionHard")
	}
	return out, nil
}

// nodes returns the machine's NUMA nodes.
func (m Machine) nodes() topology.Mask {
	var out topology.Mask
	for n := range m {
		out |= topology.MaskOf(n)
	}
	return out
}

// File returns the path of the state file in an agent's root directory.
func File(root string) string { return filepath.Join(root, state.File) }
