package allocation

import (
	"path/filepath"

	"github.com/berthd/berth/agent/node/cpus"
	"github.com/berthd/berth/agent/node/devices"
	"github.com/berthd/berth/agent/node/dra"
	"github.com/berthd/berth/agent/node/memory"
	"github.com/berthd/berth/agent/node/podresources"
)

// devicesDir and podResourcesDir are the directories beneath the root directory; their names are
// the kubelet's.
func devicesDir(root string) string { return filepath.Join(root, "device-plugins") }

func podResourcesDir(root string) string { return filepath.Join(root, "pod-resources") }

// Files returns the paths of the files that a manager makes beneath an agent's root directory, and
// of the directories that hold them. Device plugins have their own sockets in these directories.
func Files(root string) (files, dirs []string) {
	files = append(devices.Files(devicesDir(root)), cpus.File(root), memory.File(root),
		dra.File(root), podresources.File(podResourcesDir(root)))
	return files, []string{devicesDir(root), podResourcesDir(root)}
}
