package cpus

import (
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/cpuset"

	"github.com/berthd/berth/agent/node/cpus/choose"
	"github.com/berthd/berth/agent/node/cpus/state"
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
	// FullCores gives only whole cores (full-pcpus-only). Strict keeps the reserved CPUs from the
	// containers that share (strict-cpu-reservation).
	FullCores, Strict bool
	// BySocket takes CPUs in the sockets of the NUMA nodes that the topology manager chose
	// (align-by-socket).
	BySocket bool
	Choose   choose.Options
	// Ignored are the options that have no effect.
	Ignored []string
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
	for name, to := range map[string]*bool{
		"full-pcpus-only": &out.FullCores, "strict-cpu-reservation": &out.Strict,
		"distribute-cpus-across-cores": &out.Choose.Spread, "prefer-align-cpus-by-uncorecache": &out.Choose.ByCache,
		"align-by-socket": &out.BySocket,
	} {
		if text, ok := k.CPUManagerPolicyOptions[name]; ok {
			if *to, err = strconv.ParseBool(text); err != nil {
				return out, fmt.Errorf("cpuManagerPolicyOptions.%s: %w", name, err)
			}
		}
	}
	if out.BySocket && k.TopologyManagerPolicy == topology.SingleNUMANode {
		return out, errors.New("cpuManagerPolicyOptions.align-by-socket: CPUs cannot be aligned by socket under " +
			"topologyManagerPolicy single-numa-node")
	}
	if _, set := k.CPUManagerPolicyOptions["distribute-cpus-across-numa"]; set {
		out.Ignored = append(out.Ignored, "distribute-cpus-across-numa")
	}
	out.Machine, err = choose.Read("/sys/devices/system")
	return out, err
}

// File returns the path of the state file in an agent's root directory.
func File(root string) string { return filepath.Join(root, state.File) }
