package steps

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/berthd/berth/agent/generate"
)

// envFile returns what reads the pod's environment files, which containers that ran before wrote into its volumes. A file that is not there has no keys.
func (s *Starter) envFile(p *Pass) generate.EnvFile {
	return func(volume, path, key string) (string, bool, error) {
		mount, ok := p.Volumes[volume]
		if !ok {
			return "", false, fmt.Errorf("cannot find the volume %q referenced by FileKeyRef", volume)
		}
		content, err := s.Volumes.ReadEnvFile(mount, path)
		if errors.Is(err, fs.ErrNotExist) {
			return "", false, nil
		}
		if err != nil {
			return "", false, err
		}
		return generate.ParseEnvFile(content, key)
	}
}
