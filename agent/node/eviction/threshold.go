package eviction

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	kubeletconfigv1beta1 "k8s.io/kubelet/config/v1beta1"
)

// Signal names an amount that the node has left, as evictionHard and evictionSoft do.
type Signal string

// The kubelet's signals.
const (
	MemoryAvailable            Signal = "memory.available"
	AllocatableMemoryAvailable Signal = "allocatableMemory.available"
	NodeFsAvailable            Signal = "nodefs.available"
	NodeFsInodesFree           Signal = "nodefs.inodesFree"
	ImageFsAvailable           Signal = "imagefs.available"
	ImageFsInodesFree          Signal = "imagefs.inodesFree"
	ContainerFsAvailable       Signal = "containerfs.available"
	ContainerFsInodesFree      Signal = "containerfs.inodesFree"
	PIDAvailable               Signal = "pid.available"
)

// The kubelet's names of resources that are no resources of the API.
const (
	resourceInodes v1.ResourceName = "inodes"
	resourcePIDs   v1.ResourceName = "pids"
)

// order is the order in which signals are acted on: memory first, because a lack of memory kills
// soonest.
func order() []Signal {
	return []Signal{
		MemoryAvailable, AllocatableMemoryAvailable, NodeFsAvailable, NodeFsInodesFree, ImageFsAvailable,
		ImageFsInodesFree, ContainerFsAvailable, ContainerFsInodesFree, PIDAvailable,
	}
}

// resource returns what is short when there is too little of the signal's amount.
func (s Signal) resource() v1.ResourceName {
	switch s {
	case MemoryAvailable, AllocatableMemoryAvailable:
		return v1.ResourceMemory
	case NodeFsAvailable, ImageFsAvailable, ContainerFsAvailable:
		return v1.ResourceEphemeralStorage
	case NodeFsInodesFree, ImageFsInodesFree, ContainerFsInodesFree:
		return resourceInodes
	}
	return resourcePIDs
}

// condition returns the Node's condition that reports the lack.
func (s Signal) condition() v1.NodeConditionType {
	switch s.resource() {
	case v1.ResourceMemory:
		return v1.NodeMemoryPressure
	case resourcePIDs:
		return v1.NodePIDPressure
	}
	return v1.NodeDiskPressure
}

// Value is an amount: a quantity, or a share of the capacity if quantity is nil.
type Value struct {
	quantity *resource.Quantity
	// share is a part of 1. It has 32 bits, as the kubelet's has, so that the amounts in messages
	// are the same.
	share float32
}

// of returns the amount for a capacity.
func (v Value) of(capacity resource.Quantity) resource.Quantity {
	if v.quantity != nil {
		return v.quantity.DeepCopy()
	}
	return *resource.NewQuantity(int64(float64(capacity.Value())*float64(v.share)), resource.BinarySI)
}

// Threshold is the least amount of a signal that the node must have left.
type Threshold struct {
	Signal Signal
	Least  Value
	// Grace is how long the threshold must be met before pods are evicted; 0 for a hard threshold.
	Grace time.Duration
	// Reclaim is how much more than Least the node must have left before the eviction ends.
	Reclaim Value
}

// hard reports whether pods are evicted at once, with a second of grace.
func (t Threshold) hard() bool { return t.Grace == 0 }

// Thresholds returns the thresholds of a config, in the order in which they are acted on. If the
// memory of all pods together is limited (enforceNodeAllocatable), the hard threshold of the node's
// memory also holds for the pods' memory.
func Thresholds(k *kubeletconfigv1beta1.KubeletConfiguration) ([]Threshold, error) {
	out, err := parse("evictionHard", k.EvictionHard, nil)
	if err != nil {
		return nil, err
	}
	soft, err := parse("evictionSoft", k.EvictionSoft, k.EvictionSoftGracePeriod)
	if err != nil {
		return nil, err
	}
	out = append(out, soft...)
	for i, t := range out {
		if amount, ok := k.EvictionMinimumReclaim[string(t.Signal)]; ok {
			if out[i].Reclaim, err = value(amount); err != nil {
				return nil, fmt.Errorf("evictionMinimumReclaim[%s]: %w", t.Signal, err)
			}
		}
	}
	if slices.Contains(k.EnforceNodeAllocatable, "pods") {
		for _, t := range out {
			if t.Signal == MemoryAvailable && t.hard() {
				t.Signal = AllocatableMemoryAvailable
				out = append(out, t)
			}
		}
	}
	sortThresholds(out)
	return out, nil
}

// parse reads the thresholds of one field. With grace periods, each threshold must have one.
func parse(field string, amounts, graces map[string]string) ([]Threshold, error) {
	var out []Threshold
	for _, name := range slices.Sorted(maps.Keys(amounts)) {
		fail := func(err error) ([]Threshold, error) { return nil, fmt.Errorf("%s[%s]: %w", field, name, err) }
		if !slices.Contains(order(), Signal(name)) {
			return fail(fmt.Errorf("unsupported eviction signal %s", name))
		}
		if off(amounts[name]) {
			continue
		}
		t := Threshold{Signal: Signal(name)}
		var err error
		if t.Least, err = value(amounts[name]); err != nil {
			return fail(err)
		}
		if field == "evictionSoft" {
			grace, found := graces[name]
			if !found {
				return fail(fmt.Errorf("grace period must be specified for the soft eviction threshold %s", name))
			}
			if t.Grace, err = time.ParseDuration(grace); err != nil {
				return fail(err)
			}
		}
		out = append(out, t)
	}
	return out, nil
}

// off reports whether an amount switches its threshold off, as with a kubelet.
func off(amount string) bool { return amount == "0%" || amount == "100%" }

// Kept returns what the thresholds of evictionHard keep free of a capacity: pods cannot have it. An
// amount that cannot be read keeps nothing.
func Kept(hard map[string]string, capacity v1.ResourceList) v1.ResourceList {
	out := v1.ResourceList{}
	for _, s := range []Signal{MemoryAvailable, NodeFsAvailable} {
		amount, ok := hard[string(s)]
		if !ok || off(amount) {
			continue
		}
		if v, err := value(amount); err == nil {
			out[s.resource()] = v.of(capacity[s.resource()])
		}
	}
	return out
}

// value reads a quantity or a percentage.
func value(text string) (Value, error) {
	if percent, ok := strings.CutSuffix(text, "%"); ok {
		share, err := strconv.ParseFloat(percent, 32)
		if err != nil {
			return Value{}, fmt.Errorf("reading the percentage %q: %w", text, err)
		}
		return Value{share: float32(share) / 100}, nil
	}
	q, err := resource.ParseQuantity(text)
	if err != nil {
		return Value{}, fmt.Errorf("reading the amount %q: %w", text, err)
	}
	return Value{quantity: &q}, nil
}
