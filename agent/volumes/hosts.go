package volumes

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	v1 "k8s.io/api/core/v1"
)

const (
	hostsFile = "etc-hosts"
	hostsMode = 0o644
)

// WriteHosts writes the pod's /etc/hosts, and returns its path. A file that exists is changed in
// place, because running containers have it mounted. Equal content is not written again. A
// lease on the file that a container holds is an error, if it forbids what is to be done.
func (m *Manager) WriteHosts(pod *v1.Pod, content []byte) (hostPath string, err error) {
	root, err := m.openPod(pod.UID)
	if err != nil {
		return "", fmt.Errorf("write hosts file of pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	defer closeHandle(root)
	if err := writeInPlace(root, hostsFile, content); err != nil {
		return "", fmt.Errorf("write hosts file of pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return filepath.Join(m.PodDir(pod.UID), hostsFile), nil
}

func writeInPlace(root *os.Root, name string, content []byte) error {
	if info, err := root.Lstat(name); err == nil && !info.Mode().IsRegular() {
		return fmt.Errorf("%s exists and is not a regular file", name)
	}
	same, err := sameContent(root, name, content)
	if same || err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	file, err := openShared(root, name, os.O_CREATE|os.O_WRONLY, hostsMode)
	if err != nil {
		return err
	}
	defer file.Close()
	if err := file.Chmod(hostsMode); err != nil {
		return err
	}
	if _, err := file.WriteAt(content, 0); err != nil {
		return err
	}
	return file.Truncate(int64(len(content)))
}
