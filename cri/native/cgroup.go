package native

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"sync"

	"github.com/opencontainers/cgroups"
	"golang.org/x/sys/unix"
)

// cgroupMounts returns where the cgroup hierarchies are: one with cgroup v2, several with v1.
var cgroupMounts = sync.OnceValues(func() ([]string, error) {
	if cgroups.IsCgroup2UnifiedMode() {
		return []string{"/sys/fs/cgroup"}, nil
	}
	mounts, err := cgroups.GetCgroupMounts(true)
	if err != nil {
		return nil, fmt.Errorf("look where cgroups are mounted: %w", err)
	}
	var out []string
	for _, m := range mounts {
		out = append(out, m.Mountpoint)
	}
	return append(out, "/sys/fs/cgroup/unified"), nil
})

// removeCgroup removes what is left of the cgroup of a container or a pause process that containerd
// does not know any more, and kills what is in it. An OCI runtime leaves its cgroup behind if berth
// is killed while it makes a container: containerd then ends the shim with the call. Cgroups that
// systemd makes end with their last process.
func (r *Runtime) removeCgroup(parent, id string) error {
	if r.cfg.SystemdCgroups {
		return nil
	}
	mounts, err := cgroupMounts()
	if err != nil {
		return err
	}
	var errs []error
	for _, mount := range mounts {
		path := filepath.Join(mount, r.cgroup(parent, id))
		pids, err := cgroups.GetAllPids(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		for _, pid := range pids {
			if pid > 0 { // 0 is a process of another PID namespace, and for kill(2) our own group
				_ = unix.Kill(pid, unix.SIGKILL) // it may have ended
			}
		}
		if err := cgroups.RemovePath(path); err != nil {
			errs = append(errs, fmt.Errorf("remove the cgroup %s: %w", path, err))
		}
	}
	return errors.Join(errs...)
}
