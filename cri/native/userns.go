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

// host returns the node's IDs of a user and a group of the pod, 0 for one that the pod does not
// have.
func (m mappings) host(uid, gid uint32) (hostUID, hostGID uint32) {
	find := func(list []specs.LinuxIDMapping, id uint32) uint32 {
		for _, one := range list {
			if id >= one.ContainerID && id-one.ContainerID < one.Size {
				return one.HostID + id - one.ContainerID
			}
		}
		return 0
	}
	return find(m.uids, uid), find(m.gids, gid)
}

// task returns the options of a container's first process. Its user owns the pipes of its output,
// else it could not open /dev/stdout: to the kernel the node's root is nobody in the namespace.
func (m mappings) task(who user) []client.NewTaskOpts {
	if !m.own() {
		return nil
	}
	uid, gid := m.host(who.UID, who.GID)
	return []client.NewTaskOpts{client.WithUIDOwner(uid), client.WithGIDOwner(gid)}
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
