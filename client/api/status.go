package api

import (
	"fmt"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
)

// PathStatus is the path of a [NodeStatus].
const PathStatus = "/berth/v1/status"

// PathNotes is the path of [Notes].
const PathNotes = "/berth/v1/notes"

// Notes are what people must know about the node before they read about its pods.
type Notes struct {
	// SilentSince is since when the container runtime has not answered, and Error why; nil if it
	// answers.
	SilentSince *time.Time `json:"silentSince,omitempty"`
	Error       string     `json:"error,omitempty"`
	Drain       Drain      `json:"drain"`
}

// NodeStatus is what is known about the node as a whole.
type NodeStatus struct {
	Node string `json:"node"`
	// Version is the agent's version, and Started is when the agent began.
	Version string    `json:"version"`
	Started time.Time `json:"started"`
	RootDir string    `json:"rootDir"`
	Runtime Runtime   `json:"runtime"`
	// Cluster is the cluster that the node belongs to; nil for a node without a cluster.
	Cluster *Cluster `json:"cluster,omitempty"`
	// Pressure are the node's conditions of pressure that are true: DiskPressure, MemoryPressure,
	// PIDPressure.
	Pressure []string `json:"pressure,omitempty"`
	Drain    Drain    `json:"drain"`
	// Config says how the config on the disk differs from the one in force; nil if it does not.
	Config *ConfigFault `json:"config,omitempty"`
	// Resources are what the node has.
	Resources *Resources `json:"resources,omitempty"`
	// Manifests are how many documents of manifests are accepted, and how many are refused.
	Manifests ManifestCounts `json:"manifests"`
	// Archives are the files of the images directory.
	Archives []Archive `json:"archives,omitempty"`
	// Pods are how many pods are in each state: Running (and ready), NotReady, Pending,
	// Terminating, Stopped (by an operator), Succeeded, Failed.
	Pods map[string]int `json:"pods"`
	// Attention lists what needs a person, the most important first; empty if all is well.
	Attention []string `json:"attention,omitempty"`
}

// ConfigFault is how the config on the disk differs from the one in force.
type ConfigFault struct {
	// Since is when the agent first read this config.
	Since time.Time `json:"since"`
	// Error is why the config is refused.
	Error string `json:"error,omitempty"`
	// Pending are the settings that are not in force, with their places in a file.
	Pending []string `json:"pending,omitempty"`
}

// Problem says in one line what is wrong, and since when.
func (f *ConfigFault) Problem() string {
	since := f.Since.Local().Format(time.DateTime)
	if f.Error != "" {
		return fmt.Sprintf("the config on the disk is refused since %s: %s", since, strings.ReplaceAll(f.Error, "\n", "; "))
	}
	return fmt.Sprintf("settings of the config on the disk are not in force since %s: %s", since,
		strings.Join(f.Pending, ", "))
}

// Remedy says in one line what to do.
func (f *ConfigFault) Remedy() string {
	if f.Error != "" {
		return "mend the config: the agent goes on with the one that it has, but would not start again"
	}
	return "systemctl restart berth: no pod is disturbed"
}

// Resources are the node's resources, by their names.
type Resources struct {
	// Capacity is what the machine has, and Allocatable what of it pods can request.
	Capacity    v1.ResourceList `json:"capacity"`
	Allocatable v1.ResourceList `json:"allocatable"`
	// Requested is what the admitted pods request that have not ended. Its "pods" is their number.
	Requested v1.ResourceList `json:"requested"`
	// ReservedCPUs are the CPUs that are kept for the system (reservedSystemCPUs), as "0-1,4".
	ReservedCPUs string `json:"reservedCPUs,omitempty"`
}

// Runtime is the container runtime.
type Runtime struct {
	// Endpoint is the address of the runtime.
	Endpoint string `json:"endpoint"`
	// Name and Version are what the runtime said of itself; empty before its first answer.
	Name    string `json:"name,omitempty"`
	Version string `json:"version,omitempty"`
	// SilentSince is since when the runtime has not answered, and Error the last error; nil and
	// empty if the runtime answers.
	SilentSince *time.Time `json:"silentSince,omitempty"`
	Error       string     `json:"error,omitempty"`
	// Faults are the conditions of the runtime that are not true, with their reasons: RuntimeReady
	// and NetworkReady.
	Faults []string `json:"faults,omitempty"`
}

// Cluster is the connection to a cluster.
type Cluster struct {
	// Server is the address of the API server.
	Server string `json:"server"`
	// Renewed is when the node's Lease was last renewed; zero if it never was. A cluster takes a
	// node for dead whose Lease is over.
	Renewed time.Time `json:"renewed,omitzero"`
	// Late says that the Lease is over.
	Late bool `json:"late,omitempty"`
}

// ManifestCounts are counts of the documents of manifests.
type ManifestCounts struct {
	Accepted int `json:"accepted"`
	Refused  int `json:"refused"`
}
