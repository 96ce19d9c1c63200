package arch

import (
	"slices"
	"strings"
)

// floor is a layer of the agent. Its packages import packages of lower floors, their own
// subfolders, and the neighbours that are listed below; nothing else of the agent.
type floor struct {
	name string
	// packages are paths inside the module. One that ends in "/..." stands for the package and all
	// below it.
	packages []string
}

// floors are the agent's layers, from the top to the bottom. Below the last one are the leaves, and
// below these internal/.
var floors = []floor{
	{"composition: what puts the parts together and runs them", []string{"agent"}},
	{"face: the HTTP API, which nobody below knows", []string{"agent/server/..."}},
	{"wishes: from what sources want to workers, and the optional side of a cluster", []string{
		"agent/desired/...",
		"agent/cluster",
	}},
	{"engine: the sync of one pod", []string{"agent/pod"}},
	{"steps: what a sync does, one after the other, and where its objects come from", []string{
		"agent/pod/steps/...",
		"agent/pod/origin/...",
	}},
	{"parts: the machine, what pods are made of, and where they come from", []string{
		"agent/images/...",
		"agent/node/...",
		"agent/source/...",
		"agent/volumes/...",
		"agent/cluster/certs/...",
		"agent/cluster/csinode/...",
		"agent/cluster/eventwriter/...",
		"agent/cluster/kube/...",
		"agent/cluster/mirror/...",
		"agent/cluster/noderegistry/...",
		"agent/cluster/podcerts/...",
		"agent/cluster/podsource/...",
		"agent/cluster/tokens/...",
		"agent/cluster/watched/...",
	}},
	{"ground: decisions, records and tools, which know one pod and no part", []string{
		"agent/pod/checkpoint/...",
		"agent/pod/fields/...",
		"agent/pod/generate/...",
		"agent/pod/hooks/...",
		"agent/pod/observe/...",
		"agent/pod/plan/...",
		"agent/pod/references/...",
		"agent/pod/resize/...",
		"agent/pod/runtimeclass/...",
		"agent/pod/tasks/...",
		"agent/pod/timeline/...",
		"agent/pod/volumekinds/...",
		"agent/pod/worker/...",
		"agent/telemetry/...",
	}},
}

// neighbour is an import between two packages of one floor that is right, and why.
type neighbour struct {
	// from may end in "/...", as a floor's packages may.
	from, to, why string
}

// neighbours are the only imports on a floor, but for those of a package's own subfolders.
var neighbours = []neighbour{
	{"agent/cluster/...", "agent/cluster/kube", "the connection to the API server, under all that speaks to it"},
	{"agent/cluster/csinode", "agent/volumes/csi", "a CSINode lists the drivers that csi has registered"},
	{"agent/cluster/podsource", "agent/source", "the API server is one more source of pods"},
	{"agent/cluster/watched", "agent/source/objects", "the API server's objects have the keys of the local ones"},
	{"agent/images/garbage", "agent/images", "who removes unused images asks who provides the others"},
	{"agent/images/records", "agent/images/credentials", "a record says with which login an image was pulled"},
	{"agent/node/allocation", "agent/node/admit", "an allocation that failed is a refusal of admission"},
	{"agent/node/allocation", "agent/node/cpus", "CPUs of their own are what containers are given"},
	{"agent/node/allocation", "agent/node/devices", "devices are what containers are given"},
	{"agent/node/allocation", "agent/node/dra", "devices of resource claims are what containers are given"},
	{"agent/node/allocation", "agent/node/memory", "memory of NUMA nodes is what containers are given"},
	{"agent/node/allocation", "agent/node/podlevel", "a pod can get its pieces as a whole"},
	{"agent/node/allocation", "agent/node/podresources", "who has which devices is told to programs"},
	{"agent/node/allocation", "agent/node/room", "the room's pods are those that hold devices"},
	{"agent/node/allocation", "agent/node/topology", "what a container gets can have to be on the same NUMA nodes"},
	{"agent/node/cpus", "agent/node/podlevel", "a pod can have CPUs as a whole"},
	{"agent/node/cpus", "agent/node/topology", "CPUs are on NUMA nodes"},
	{"agent/node/devices", "agent/node/plugins", "a device plugin registers as a plugin"},
	{"agent/node/dra", "agent/node/plugins", "a DRA driver registers as a plugin"},
	{"agent/node/devices", "agent/node/topology", "devices are on NUMA nodes"},
	{"agent/node/eviction", "agent/node/stats", "what the node and its pods use is what stats has read"},
	{"agent/node/gc", "agent/volumes", "what is left of a pod's volumes is taken down by who made them"},
	{"agent/node/hostcgroups", "agent/node/stats", "the machine's cgroups are what stats reads"},
	{"agent/node/memory", "agent/node/podlevel", "a pod can have memory as a whole"},
	{"agent/node/memory", "agent/node/topology", "memory is on NUMA nodes"},
	{"agent/node/preempt", "agent/node/admit", "who leaves is chosen by what admission found missing"},
	{"agent/node/room", "agent/node/admit", "the room asks admission's pure rules"},
	{"agent/node/runtimestate", "agent/node", "the node's facts have what the runtime can do"},
	{"agent/node/runtimestate", "agent/node/doctor", "a runtime with known holes is warned of by doctor's list"},
	{"agent/source", "agent/node/admit", "who writes a manifest is warned of what admission's pure rules will refuse"},
	{"agent/volumes/csi", "agent/node/plugins", "a CSI driver registers as a plugin"},
	{"agent/volumes/expand", "agent/volumes/csi", "a volume grows by a call to its driver"},

	{"agent/pod/checkpoint", "agent/pod/plan", "the record keeps the delays and the stops that plan decided"},
	{"agent/pod/checkpoint", "agent/pod/resize", "the record keeps what a resize has allocated"},
	{"agent/pod/checkpoint", "agent/pod/worker", "the record keeps the worker's phase"},
	{"agent/telemetry/history", "agent/pod/timeline", "what happened to a pod is its timeline"},
	{"agent/pod/observe", "agent/pod/plan", "what is observed is plan's input"},
}

// matches reports whether a package is the one that a pattern names, or one below it where the
// pattern ends in "/...".
func matches(pattern, pkg string) bool {
	root, below := strings.CutSuffix(pattern, "/...")
	return pkg == root || below && strings.HasPrefix(pkg, root+"/")
}

// floorOf returns the floor of a package of the agent, counted from the top; -1 if no floor has it.
func floorOf(pkg string) int {
	return slices.IndexFunc(floors, func(f floor) bool {
		return slices.ContainsFunc(f.packages, func(pattern string) bool { return matches(pattern, pkg) })
	})
}

// mayImportInAgent reports whether one package of the agent may import another.
func mayImportInAgent(from, to string) bool {
	upper, lower := floorOf(from), floorOf(to)
	switch {
	case upper < 0 || lower < 0:
		return false
	case upper != lower:
		return upper < lower
	case strings.HasPrefix(to, from+"/"):
		return true
	}
	return slices.ContainsFunc(neighbours, func(n neighbour) bool { return matches(n.from, from) && n.to == to })
}
