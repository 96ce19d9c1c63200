package node

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/cpuset"

	"github.com/berthd/berth/agent/node/eviction"
	"github.com/berthd/berth/configs"
	"github.com/berthd/berth/internal/pods"
)

// capacity reads the capacity of the machine, for an agent with this config.
func capacity(cfg *configs.Config) (v1.ResourceList, error) {
	out, err := machine()
	if err != nil {
		return nil, err
	}
	if on := cfg.Kubelet.LocalStorageCapacityIsolation; on == nil || *on {
		storage, err := storageCapacity(cfg.RootDir)
		if err != nil {
			return nil, err
		}
		out[v1.ResourceEphemeralStorage] = *resource.NewQuantity(storage, resource.BinarySI)
	}
	cpus := out[v1.ResourceCPU]
	out[v1.ResourcePods] = *resource.NewQuantity(maxPods(cfg, int(cpus.Value())), resource.DecimalSI)
	return out, nil
}

// onlineCPUs is the file in which the kernel lists the machine's CPUs
// (Documentation/ABI/testing/sysfs-devices-system-cpu).
const onlineCPUs = "/sys/devices/system/cpu/online"

// machine reads how much cpu and memory and how many huge pages the machine has.
func machine() (v1.ResourceList, error) {
	memory, err := MemoryCapacity()
	if err != nil {
		return nil, err
	}
	// those that the agent may use, if the kernel does not list the machine's
	cpus := runtime.NumCPU()
	if data, err := readFile(onlineCPUs); err == nil {
		if n := countCPUs(string(data)); n > 0 {
			cpus = n
		}
	}
	out := v1.ResourceList{
		v1.ResourceCPU:    *resource.NewQuantity(int64(cpus), resource.DecimalSI),
		v1.ResourceMemory: *resource.NewQuantity(memory, resource.BinarySI),
	}
	maps.Copy(out, hugePages("/sys/kernel/mm/hugepages"))
	return out, nil
}

// hugePages returns the huge pages that the kernel has reserved, by their size
// (Documentation/admin-guide/mm/hugetlbpage.rst).
func hugePages(dir string) v1.ResourceList {
	out := v1.ResourceList{}
	sizes, _ := filepath.Glob(filepath.Join(dir, "hugepages-*kB")) // the pattern is well formed
	for _, path := range sizes {
		kib, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimPrefix(filepath.Base(path), "hugepages-"), "kB"),
			10, 53)
		if err != nil {
			continue
		}
		data, err := readFile(filepath.Join(path, "nr_hugepages"))
		if err != nil {
			continue
		}
		n, err := strconv.ParseInt(strings.TrimSpace(string(data)), 10, 53)
		if err != nil || n < 0 {
			continue
		}
		size := resource.NewQuantity(kib<<10, resource.BinarySI)
		out[v1.ResourceName(v1.ResourceHugePagesPrefix+size.String())] = *resource.NewQuantity(n*kib<<10,
			resource.BinarySI)
	}
	return out
}

// MemoryCapacity returns the machine's memory in bytes (/proc/meminfo, MemTotal).
func MemoryCapacity() (int64, error) {
	data, err := readFile("/proc/meminfo")
	if err != nil {
		return 0, fmt.Errorf("reading the machine's memory: %w", err)
	}
	return memTotal(string(data))
}

// SwapCapacity returns how much the machine can swap out, in bytes (/proc/meminfo, SwapTotal). It
// returns 0 if that cannot be read.
func SwapCapacity() int64 {
	data, err := readFile("/proc/meminfo")
	if err != nil {
		return 0
	}
	swap, err := meminfoOf(string(data), "SwapTotal")
	if err != nil {
		return 0
	}
	return swap
}

// memTotal reads MemTotal of /proc/meminfo, in bytes.
func memTotal(meminfo string) (int64, error) {
	total, err := meminfoOf(meminfo, "MemTotal")
	if err == nil && total == 0 {
		err = errors.New("reading the machine's memory: MemTotal is 0")
	}
	return total, err
}

// meminfoOf reads a field of /proc/meminfo, in bytes.
func meminfoOf(meminfo, field string) (int64, error) {
	for line := range strings.Lines(meminfo) {
		if rest, ok := strings.CutPrefix(line, field+":"); ok {
			kib, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")), 10, 53)
			if err != nil || kib < 0 {
				return 0, fmt.Errorf("reading the machine's memory: %s is %q", field, strings.TrimSpace(rest))
			}
			return kib << 10, nil
		}
	}
	return 0, fmt.Errorf("reading the machine's memory: /proc/meminfo has no %s", field)
}

// countCPUs counts the processors in a list like "0-3,8,10-11" (cpuset(7), list format). It returns
// 0 if the list cannot be parsed.
func countCPUs(list string) int {
	n := 0
	for part := range strings.SplitSeq(strings.TrimSpace(list), ",") {
		from, to, isRange := strings.Cut(part, "-")
		first, err := strconv.ParseUint(from, 10, 16)
		if err != nil {
			return 0
		}
		last := first
		if isRange {
			if last, err = strconv.ParseUint(to, 10, 16); err != nil || last < first {
				return 0
			}
		}
		n += int(last - first + 1)
	}
	return n
}

// storageCapacity returns the size in bytes of the file system of the root directory. If the
// directory does not exist yet, its nearest existing parent counts.
func storageCapacity(dir string) (int64, error) {
	for {
		var fs unix.Statfs_t
		err := unix.Statfs(dir, &fs)
		if err == nil {
			return int64(fs.Blocks) * fs.Bsize, nil
		}
		if parent := filepath.Dir(dir); errors.Is(err, unix.ENOENT) && parent != dir {
			dir = parent
			continue
		}
		return 0, fmt.Errorf("reading the size of the file system of %s: %w", dir, err)
	}
}

// resourcePids is a kubelet's name for process ids in reservations.
const resourcePids v1.ResourceName = "pid"

// amounts reads reserved amounts. The config's validation has checked them.
func amounts(reserved map[string]string) v1.ResourceList {
	out := v1.ResourceList{}
	for name, amount := range reserved {
		if q, err := resource.ParseQuantity(amount); err == nil {
			out[v1.ResourceName(name)] = q
		}
	}
	return out
}

// maxPids returns how many processes and threads the kernel allows (proc_sys_kernel(5), pid_max and
// threads-max). It returns 0 if neither can be read.
func maxPids(dir string) int64 {
	most := int64(0)
	for _, file := range []string{"pid_max", "threads-max"} {
		text, err := readFile(filepath.Join(dir, file))
		if err != nil {
			continue
		}
		n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
		if err == nil && n > 0 && (most == 0 || n < most) {
			most = n
		}
	}
	return most
}

// online returns an error if the config reserves CPUs that the machine does not have.
func online(reserved, list string) error {
	wanted, err := cpuset.Parse(reserved)
	if err != nil {
		return fmt.Errorf("reservedSystemCPUs: %w", err)
	}
	have, err := cpuset.Parse(strings.TrimSpace(list))
	if err == nil && !wanted.IsSubsetOf(have) {
		return fmt.Errorf("reservedSystemCPUs: %s is not a subset of this machine's CPUs (%s)", reserved, have)
	}
	return nil
}

// reservable returns an error if the config keeps more of a resource from the pods than the machine
// has.
func (n *Node) reservable() error {
	system, kube := n.Reserved()
	var wrong []string
	for _, name := range pods.ResourceNames(n.capacity) {
		have, kept := n.capacity[name], resource.Quantity{}
		for _, amounts := range []v1.ResourceList{
			system, kube, eviction.Kept(n.cfg.Kubelet.EvictionHard, n.capacity),
		} {
			kept.Add(amounts[name])
		}
		if kept.Cmp(have) > 0 {
			wrong = append(wrong, fmt.Sprintf("%s of %s, of which this machine has %s", kept.String(), name, have.String()))
		}
	}
	if len(wrong) == 0 {
		return nil
	}
	return fmt.Errorf("systemReserved, kubeReserved and evictionHard keep together %s: lower them",
		strings.Join(wrong, "; "))
}

// take subtracts several amounts from list.
func take(list, amounts v1.ResourceList) {
	for name, amount := range amounts {
		subtract(list, name, amount)
	}
}

// subtract subtracts q from one resource of list. The result is never below 0.
func subtract(list v1.ResourceList, name v1.ResourceName, q resource.Quantity) {
	have, ok := list[name]
	if !ok || q.Sign() <= 0 {
		return
	}
	have.Sub(q)
	if have.Sign() < 0 {
		have.Set(0)
	}
	list[name] = have
}

// maxPods returns how many pods the node runs at most: the config's maxPods, but not more than its
// podsPerCore allows.
func maxPods(cfg *configs.Config, cpus int) int64 {
	most := int64(cfg.Kubelet.MaxPods)
	if perCore := int64(cfg.Kubelet.PodsPerCore); perCore > 0 {
		most = min(most, perCore*int64(cpus))
	}
	return most
}

// Amounts returns the node's capacity, and the memory that pods cannot have of it: the config's
// reservations, and what hard eviction keeps free.
func (n *Node) Amounts() (capacity, withheld v1.ResourceList) {
	left := n.Enforced()
	take(left, eviction.Kept(n.cfg.Kubelet.EvictionHard, n.capacity))
	memory := n.capacity[v1.ResourceMemory].DeepCopy()
	memory.Sub(left[v1.ResourceMemory])
	return n.capacity.DeepCopy(), v1.ResourceList{v1.ResourceMemory: memory}
}
