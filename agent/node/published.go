package node

import (
	"maps"

	v1 "k8s.io/api/core/v1"
)

// Devices are the devices that device plugins have; *devices.Manager implements it.
type Devices interface {
	// Capacity returns the devices by resource, and how many of them are healthy.
	Capacity() (capacity, allocatable v1.ResourceList)
	// Counted returns the extended resources that admission counts, of those that the Node object
	// has for pods.
	Counted(object v1.ResourceList) v1.ResourceList
	// Fresh reports whether this machine has not registered in a cluster yet. Registered says that
	// it has.
	Fresh() bool
	Registered()
}

// SetDevices sets the devices of device plugins.
func (n *Node) SetDevices(devices Devices) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.devices = devices
}

// Devices returns what SetDevices got.
func (n *Node) Devices() Devices {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.devices
}

// Published returns what the node has, and what pods can request, devices included: others are told
// so.
func (n *Node) Published() (capacity, allocatable v1.ResourceList) {
	capacity, allocatable = n.Capacity(), n.Allocatable()
	if devices := n.Devices(); devices != nil {
		all, healthy := devices.Capacity()
		maps.Copy(capacity, all)
		maps.Copy(allocatable, healthy)
	}
	return capacity, allocatable
}

// Countable returns what admission counts: what pods can request and, in a cluster, the extended
// resources of the Node object. It has no devices that device plugins give out: their own manager
// counts these.
func (n *Node) Countable() v1.ResourceList {
	out := n.Allocatable()
	n.mu.Lock()
	devices, object := n.devices, n.object
	n.mu.Unlock()
	if devices != nil && object != nil {
		maps.Copy(out, devices.Counted(object.Status.Allocatable))
	}
	return out
}
