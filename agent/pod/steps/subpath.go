package steps

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"

	"github.com/berthd/berth/agent/volumes"
)

// subPath returns what mounts the subPaths of a container. The server of a volume may be silent.
func (s *Starter) subPath(ctx context.Context, p *Sync, c *v1.Container) func(int, string, string) (string, error) {
	return func(index int, volume, subPath string) (string, error) {
		uid, mount := p.Pod.UID, volumes.SubPathMount{
			Container: c.Name, Index: index, Volume: volume, VolumePath: p.Volumes[volume].HostPath, Path: subPath,
		}
		var found string
		key := fmt.Sprintf("subPath/%s/%d", c.Name, index)
		err := p.Briefly(ctx, key, mount.VolumePath, func(ctx context.Context) (err error) {
			found, err = s.Volumes.SubPath(ctx, uid, mount)
			return err
		})
		if err != nil {
			return "", err
		}
		return found, nil
	}
}
