package steps

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/berthd/berth/agent/pod/generate"
)

// envFile returns the reader of the pod's environment files. Containers that ran before wrote these
// files into the pod's volumes. A file that does not exist has no keys.
func (s *Starter) envFile(ctx context.Context, p *Sync) generate.EnvFile {
	return func(volume, path, key string) (string, bool, error) {
		mount, ok := p.Volumes[volume]
		if !ok {
			return "", false, fmt.Errorf("cannot find the volume %q referenced by FileKeyRef", volume)
		}
		var content string
		err := p.Briefly(ctx, "envFile/"+volume+"/"+path, mount.HostPath, func(context.Context) (err error) {
			content, err = s.Volumes.ReadEnvFile(mount, path)
			return err
		})
		if errors.Is(err, fs.ErrNotExist) {
			return "", false, nil
		}
		if err != nil {
			return "", false, err
		}
		return generate.ParseEnvFile(content, key)
	}
}
