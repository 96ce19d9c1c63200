package arch

import (
	"slices"
	"strings"
)

// module is this module's path.
const module = "github.com/berthd/berth/"

// leaves are the packages below the agent. They know nothing of each other; their subpackages may
// import them.
var leaves = []string{"cri", "cni", "cgroups", "probes", "status", "configs"}

// kubernetes are the packages of k8s.io/kubernetes that this code may import: the pods' defaults,
// validation and conversion.
var kubernetes = []string{
	"k8s.io/kubernetes/pkg/apis/core",
	"k8s.io/kubernetes/pkg/apis/core/v1",
	"k8s.io/kubernetes/pkg/apis/core/v1/helper",
	"k8s.io/kubernetes/pkg/apis/core/v1/helper/qos",
	"k8s.io/kubernetes/pkg/apis/core/validation",
}

// unlinked are packages, with all below them, that must not be in the agent's binary: they cost
// memory or are what the agent replaces.
var unlinked = []string{
	"github.com/google/cadvisor",
	"go.etcd.io",
	"k8s.io/apiserver/pkg/registry",
	"k8s.io/apiserver/pkg/storage/etcd3",
	"k8s.io/client-go/informers",
	"k8s.io/client-go/kubernetes",
	"k8s.io/kubernetes/pkg/controlplane",
	"k8s.io/kubernetes/pkg/kubelet",
	"k8s.io/kubernetes/pkg/registry",
}

// containerds are containerd's own packages. Only cri/containerd and cri/native know them, and
// cri/internal/store, which both use: the CRI is all that others share with a runtime.
var containerds = []string{"github.com/containerd/containerd"}

// mayImport reports whether one package of this module may import another; both are paths inside
// the module. Imports go one way: commands, agent, leaves. Packages under test stand outside and
// may import all; only they import each other.
func mayImport(from, to string) bool {
	a, b := top(from), top(to)
	switch {
	case a == "test":
		return true
	case a == "cri" && b == "cri":
		// The runtimes, and what serves and reads them, know the contract alone, not each other.
		return to == "cri" || under(to, []string{"cri/internal"}) || from != "cri" && under(to, []string{from})
	case a == "agent" && b == "agent":
		return mayImportInAgent(from, to)
	case a == b || b == "internal":
		return true
	case a == "internal":
		return false
	case b == "test" || b == "cmd":
		return false
	case a == "cmd":
		return true
	case a == "agent" && b == "client":
		// The server and its client share the local API's types, and the way to commands' streams.
		// Below the face nobody knows them.
		return (to == "client/api" || to == "client/streams") && floorOf(from) >= 0 &&
			floorOf(from) <= floorOf("agent/server")
	case a == "agent":
		return slices.Contains(leaves, b)
	default:
		// The native runtime is a CRI service, which attaches networks itself.
		return from == "cri/native" && b == "cni"
	}
}

// top returns the first part of a path.
func top(path string) string {
	first, _, _ := strings.Cut(path, "/")
	return first
}

// under tells whether a package is one of the roots or below one.
func under(pkg string, roots []string) bool {
	return slices.ContainsFunc(roots, func(root string) bool { return pkg == root || strings.HasPrefix(pkg, root+"/") })
}
