package native

import (
	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/opencontainers/runtime-spec/specs-go"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// mappings are the IDs of a pod's user namespace; empty if the pod has none of its own.
type mappings struct{ uids, gids []specs.LinuxIDMapping }

// userns returns the mappings that namespace options ask for.
func userns(options *runtimeapi.NamespaceOption) mappings {
	asked := options.GetUsernsOptions()
	if asked == nil || asked.GetMode() != runtimeapi.NamespaceMode_POD {
		return mappings{}
	}
	return mappings{idMappings(asked.GetUids()), idMappings(asked.GetGids())}
}

func idMappings(in []*runtimeapi.IDMapping) []specs.LinuxIDMapping {
	var out []specs.LinuxIDMapping
	for _, m := range in {
		out = append(out, specs.LinuxIDMapping{ContainerID: m.ContainerId, HostID: m.HostId, Size: m.Length})
	}
	return out
}

// own reports whether there is a user namespace.
func (m mappings) own() bool { return len(m.uids) > 0 }

// root returns the node's IDs of the pod's root.
func (m mappings) root() (uid, gid int) {
	find := func(list []specs.LinuxIDMapping) int {
		for _, one := range list {
			if one.ContainerID == 0 {
				return int(one.HostID)
			}
		}
		return 0
	}
	return find(m.uids), find(m.gids)
}

// snapshot returns what a snapshotter needs to give the files of an image the pod's IDs.
func (m mappings) snapshot() []snapshots.Opt {
	if !m.own() {
		return nil
	}
	return []snapshots.Opt{client.WithUserNSRemapperLabels(m.uids, m.gids)}
}

// namespace returns the options of a spec whose user namespace is at a path.
func (m mappings) namespace(path string) []oci.SpecOpts {
	if !m.own() {
		return nil
	}
	return []oci.SpecOpts{oci.WithUserNamespace(m.uids, m.gids), join(specs.UserNamespace, path)}
}
