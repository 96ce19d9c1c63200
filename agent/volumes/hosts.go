package volumes

import (
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
)

const (
	hostsFile = "etc-hosts"
	hostsMode = 0o644
)

// WriteHosts writes the pod's /etc/hosts, and returns its path. A file that exists is changed in
// place, because running containers have it mounted. Equal content is not written again.
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
	file, err := root.OpenFile(name, os.O_CREATE|os.O_RDWR|unix.O_NOFOLLOW, hostsMode)
	if err != nil {
		return err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	if info.Size() == int64(len(content)) {
		current := make([]byte, len(content))
		if _, err := io.ReadFull(file, current); err == nil && string(current) == string(content) {
			return nil
		}
	}
	if err := file.Chmod(hostsMode); err != nil {
		return err
	}
	if _, err := file.WriteAt(content, 0); err != nil {
		return err
	}
	return file.Truncate(int64(len(content)))
}
