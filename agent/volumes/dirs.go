package volumes

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berthd/berth/internal/pods"
)

const (
	// dirMode is the mode of the pod's own directories, as the kubelet's. Only root and its group
	// may enter them.
	dirMode = 0o750
	// maxNameLength and maxPathLength are Linux's limits, in bytes.
	maxNameLength = 255
	maxPathLength = 4096
)

// EnsureDirs makes the pod's directories: its own, those of its volumes and plugins, and one for
// each container. Directories that exist stay as they are. It is an error if a directory's name is
// taken by something else.
func (m *Manager) EnsureDirs(ctx context.Context, pod *v1.Pod) error {
	if err := m.ensureDirs(ctx, pod); err != nil {
		return fmt.Errorf("make directories of pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return nil
}

func (m *Manager) ensureDirs(ctx context.Context, pod *v1.Pod) error {
	uid := string(pod.UID)
	if err := checkName("pod UID", uid); err != nil {
		return err
	}
	if err := os.MkdirAll(m.podsDir, dirMode); err != nil {
		return err
	}
	root, err := os.OpenRoot(m.podsDir)
	if err != nil {
		return err
	}
	defer closeHandle(root)
	for _, dir := range []string{uid, uid + "/volumes", uid + "/plugins", uid + "/containers"} {
		if err := ensureDir(root, dir); err != nil {
			return err
		}
	}
	for container := range pods.Containers(&pod.Spec) {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := checkName("container", container.Name); err != nil {
			return err
		}
		if err := ensureDir(root, uid+"/containers/"+container.Name); err != nil {
			return err
		}
	}
	return nil
}

// ensureDir makes one directory beneath root, unless it exists. A symbolic link to a directory is
// refused.
func ensureDir(root *os.Root, dir string) error {
	err := root.Mkdir(dir, dirMode)
	if !errors.Is(err, fs.ErrExist) {
		return err
	}
	info, err := root.Lstat(dir)
	if err == nil && !info.IsDir() {
		err = fmt.Errorf("%s exists and is not a directory", filepath.Join(root.Name(), dir))
	}
	return err
}

// openPod opens the pod's directory. Nothing that is done through the result leaves the directory.
func (m *Manager) openPod(uid types.UID) (*os.Root, error) {
	if err := checkName("pod UID", string(uid)); err != nil {
		return nil, err
	}
	pods, err := os.OpenRoot(m.podsDir)
	if err != nil {
		return nil, err
	}
	defer closeHandle(pods)
	return pods.OpenRoot(string(uid))
}

// List returns the UIDs of the pods that have a directory on disk, whoever made it. If there is no
// directory of pods at all, there are no pods.
func (m *Manager) List(ctx context.Context) ([]types.UID, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(m.podsDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list directories of pods: %w", err)
	}
	uids := make([]types.UID, 0, len(entries))
	for _, entry := range entries {
		if entry.IsDir() {
			uids = append(uids, types.UID(entry.Name()))
		}
	}
	return uids, nil
}
