package volumes

import (
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/berthd/berth/internal/beneath"
)

const (
	// terminationLogMode lets a container of any user write its message.
	terminationLogMode = 0o666
	// keptTerminationLogs bounds the termination logs of a container that restarts forever: this
	// attempt's and those before it.
	keptTerminationLogs = 3
)

// TerminationLog makes the empty file to which a container's attempt writes its termination
// message, and returns its path. The path depends only on the pod, the container and the attempt. A
// file that exists is replaced. The logs of all attempts before the last two are removed.
func (m *Manager) TerminationLog(pod *v1.Pod, container string, attempt uint32) (hostPath string, err error) {
	if err := checkName("container", container); err != nil {
		return "", err
	}
	root, err := m.openPod(pod.UID)
	if err != nil {
		return "", fmt.Errorf("make termination log of container %s in pod %s/%s: %w", container, pod.Namespace,
			pod.Name, err)
	}
	defer closeHandle(root)
	name := terminationLogName(pod, container, attempt)
	if err := createTerminationLog(root, name); err != nil {
		return "", fmt.Errorf("make termination log of container %s in pod %s/%s: %w", container, pod.Namespace,
			pod.Name, err)
	}
	if attempt >= keptTerminationLogs {
		if old := terminationLogName(pod, container, attempt-keptTerminationLogs); old != name {
			_ = root.Remove(old) // at worst, an empty file stays until the pod is removed
		}
	}
	return filepath.Join(m.PodDir(pod.UID), name), nil
}

func createTerminationLog(root *os.Root, name string) error {
	if err := root.MkdirAll(path.Dir(name), dirMode); err != nil {
		return err
	}
	if err := root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	file, err := root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, terminationLogMode)
	if err != nil {
		return err
	}
	defer file.Close()
	return file.Chmod(terminationLogMode) // whatever the umask
}

// terminationLogName returns the log's path beneath the pod's directory. Like the kubelet's, its
// name has eight hexadecimal digits.
func terminationLogName(pod *v1.Pod, container string, attempt uint32) string {
	hash := fnv.New32a()
	fmt.Fprintf(hash, "%s/%s/%d", pod.UID, container, attempt)
	return fmt.Sprintf("containers/%s/%08x", container, hash.Sum32())
}

// ReadTerminationMessage returns the last limit bytes of a termination log. hostPath is what the
// runtime reports for the container's mount. The pod's author can have mounted something else
// there. So only a regular file beneath the pods' directory is read, and no symbolic link is
// followed. A missing file is [fs.ErrNotExist].
func (m *Manager) ReadTerminationMessage(hostPath string, limit int64) (string, error) {
	message, err := m.readTerminationMessage(hostPath, limit)
	if err != nil {
		return "", fmt.Errorf("read termination log: %w", err)
	}
	return message, nil
}

func (m *Manager) readTerminationMessage(hostPath string, limit int64) (string, error) {
	name, err := filepath.Rel(m.podsDir, hostPath)
	if err != nil || !filepath.IsLocal(name) {
		return "", fmt.Errorf("%s is not beneath %s", hostPath, m.podsDir)
	}
	file, err := openRegular(m.podsDir, name, beneath.NoSymlinks)
	if err != nil {
		return "", err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return "", err
	}
	start := max(info.Size()-limit, 0)
	var message strings.Builder
	if _, err := io.Copy(&message, io.NewSectionReader(file, start, limit)); err != nil {
		return "", err
	}
	return message.String(), nil
}
