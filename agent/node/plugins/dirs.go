package plugins

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	goselinux "github.com/opencontainers/selinux/go-selinux"
)

// The directories beneath an agent's root directory in which plugins have their sockets: those that
// drivers serve, those with which plugins register, and those of device plugins. The names are the
// kubelet's.
const (
	DriversDir  = "plugins"
	RegistryDir = "plugins_registry"
	DevicesDir  = "device-plugins"
)

// socketsLabel is the SELinux label of these directories, the kubelet's: containers that are not
// privileged may make sockets there.
const socketsLabel = "system_u:object_r:container_file_t:s0"

// MakeDirs makes the directories of plugins beneath an agent's root directory, before the first
// plugin comes. On a node with SELinux it labels them; that this fails is logged.
func MakeDirs(root string, log *slog.Logger) error {
	label := goselinux.SetFileLabel
	if !goselinux.GetEnabled() {
		label = func(string, string) error { return nil }
	}
	return makeDirs(root, label, log)
}

func makeDirs(root string, label func(path, label string) error, log *slog.Logger) error {
	for _, name := range []string{DriversDir, RegistryDir, DevicesDir} {
		dir := filepath.Join(root, name)
		if err := os.MkdirAll(dir, dirMode); err != nil {
			return fmt.Errorf("making the directories of plugins: %w", err)
		}
		if err := label(dir, socketsLabel); err != nil {
			log.Warn("directory of plugins not labelled: plugins in containers that are not privileged may not be able to "+
				"make sockets there", "dir", dir, "label", socketsLabel, "err", err)
		}
	}
	return nil
}
