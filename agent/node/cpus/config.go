package cpus

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/cpuset"

	"github.com/berthd/berth/agent/node/cpus/choose"
	"github.com/berthd/berth/agent/node/cpus/state"
	"github.com/berthd/berth/agent/node/podlevel"
	"github.com/berthd/berth/agent/node/topology"
	"github.com/berthd/berth/configs"
)

// The names of the policies.
const (
	policyNone   = "none"
	policyStatic = "static"
)

// Config configures a [Manager].
type Config struct {
	Policy string
	// Reserved are the CPUs that nobody has for himself. If it is empty, ReservedCount of the CPUs
	// are chosen.
	Reserved      cpuset.CPUSet
	ReservedCount int
	// Strict keeps the reserved CPUs from the containers that share (strict-cpu-reservation).
	Strict bool
	// BySocket takes CPUs in the sockets of the NUMA nodes that the topology manager chose
	// (align-by-socket).
	BySocket bool
	Choose   choose.Options
	// Rules are those for pods with resources of their own.
	Rules podlevel.Rules
	// Period is how often Run compares what containers have with what they should have.
	Period time.Duration
	// File is the path of the state file, Machine the machine's CPUs.
	File    string
	Machine choose.Machine
}

// ConfigFrom returns the config of a node. kept returns the amounts that it keeps from its pods.
func ConfigFrom(cfg *configs.Config, kept func() (system, kube v1.ResourceList)) (Config, error) {
	k := &cfg.Kubelet
	out := Config{
		Policy: k.CPUManagerPolicy, Period: max(k.CPUManagerReconcilePeriod.Duration, time.Second),
		File: File(cfg.RootDir),
	}
	if out.Policy != policyStatic {
		return out, nil
	}
	system, kube := kept()
	reserved := system.Cpu().DeepCopy()
	reserved.Add(*kube.Cpu())
	if reserved.IsZero() {
		return out, errors.New("cpuManagerPolicy static: some cpu must be reserved for the system: set systemReserved.cpu, " +
			"kubeReserved.cpu or reservedSystemCPUs")
	}
	out.ReservedCount = int(math.Ceil(float64(reserved.MilliValue()) / 1000))
	var err error
	if out.Reserved, err = cpuset.Parse(k.ReservedSystemCPUs); err != nil {
		return out, fmt.Errorf("reservedSystemCPUs: %w", err)
	}
	if err := out.options(k.CPUManagerPolicyOptions, k.TopologyManagerPolicy); err != nil {
		return out, fmt.Errorf("cpuManagerPolicyOptions.%w", err)
	}
	if out.Machine, err = choose.Read("/sys/devices/system"); err != nil {
		return out, err
	}
	if sockets, nodes := out.Machine.Groups(); out.BySocket && sockets > nodes {
		return out, fmt.Errorf("cpuManagerPolicyOptions.align-by-socket: CPUs cannot be aligned by socket on a machine "+
			"with more sockets (%d) than NUMA nodes (%d)", sockets, nodes)
	}
	return out, nil
}

// options reads the policy's options. Some pairs of them contradict each other.
func (c *Config) options(options map[string]string, topologyPolicy string) error {
	known := map[string]*bool{
		"full-pcpus-only": &c.Choose.WholeCores, "strict-cpu-reservation": &c.Strict,
		"distribute-cpus-across-cores": &c.Choose.Spread, "prefer-align-cpus-by-uncorecache": &c.Choose.ByCache,
		"distribute-cpus-across-numa": &c.Choose.OverNodes, "align-by-socket": &c.BySocket,
	}
	for _, name := range slices.Sorted(maps.Keys(options)) {
		to, ok := known[name]
		if !ok {
			return fmt.Errorf("%s: there is no such option; there are %s", name,
				strings.Join(slices.Sorted(maps.Keys(known)), ", "))
		}
		var err error
		if *to, err = strconv.ParseBool(options[name]); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	for _, pair := range [][2]string{
		{"distribute-cpus-across-cores", "full-pcpus-only"},
		{"distribute-cpus-across-cores", "distribute-cpus-across-numa"},
		{"distribute-cpus-across-cores", "prefer-align-cpus-by-uncorecache"},
		{"distribute-cpus-across-numa", "prefer-align-cpus-by-uncorecache"},
	} {
		if *known[pair[0]] && *known[pair[1]] {
			return fmt.Errorf("%s: it contradicts %s: set one of them", pair[0], pair[1])
		}
	}
	if c.BySocket && topologyPolicy == topology.SingleNUMANode {
		return errors.New("align-by-socket: CPUs cannot be aligned by socket under topologyManagerPolicy single-numa-node")
	}
	return nil
}

// File returns the path of the state file in an agent's root directory.
func File(root string) string { return filepath.Join(root, state.File) }
