package native

import (
	"testing"

	runcoptions "github.com/containerd/containerd/api/types/runc/options"
	"github.com/containerd/containerd/v2/client"
	"github.com/opencontainers/runtime-spec/specs-go"
)

// The pipes of a container's output belong to its user, as the node knows the user.
func TestOwnerOfOutput(t *testing.T) {
	m := mappings{
		uids: []specs.LinuxIDMapping{{ContainerID: 0, HostID: 100_000, Size: 65536}},
		gids: []specs.LinuxIDMapping{
			{ContainerID: 0, HostID: 200_000, Size: 10}, {ContainerID: 10, HostID: 300_000, Size: 10},
		},
	}
	for _, c := range []struct {
		who      user
		uid, gid uint32
	}{
		{user{UID: 0, GID: 0}, 100_000, 200_000},
		{user{UID: 1000, GID: 9}, 101_000, 200_009},
		{user{UID: 65535, GID: 19}, 165_535, 300_009},
		{user{UID: 65536, GID: 20}, 0, 0}, // the OCI runtime refuses such a user
	} {
		var info client.TaskInfo
		for _, opt := range m.task(c.who) {
			if err := opt(t.Context(), nil, &info); err != nil {
				t.Fatal(err)
			}
		}
		got, ok := info.Options.(*runcoptions.Options)
		if !ok || got.IoUid != c.uid || got.IoGid != c.gid {
			t.Errorf("for %+v the shim gets %v, want %d and %d", c.who, info.Options, c.uid, c.gid)
		}
	}
	if opts := (mappings{}).task(user{UID: 1000}); len(opts) > 0 {
		t.Errorf("without a user namespace the shim gets %d options", len(opts))
	}
}
