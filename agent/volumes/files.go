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

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
)

const (
	// terminationLogMode lets a container of any user write its message.
	terminationLogMode = 0o666
	// keptTerminationLogs bounds the termination logs of a container that restarts for ever: this attempt's and those before it.
	keptTerminationLogs = 3
	hostsFile           = "etc-hosts"
	hostsMode           = 0o644
)

// TerminationLog makes the empty file to which a container's attempt writes its termination message, and returns its path. The path
// depends only on the pod, the container and the attempt; a file that is there already is replaced. The logs of the attempts before the
// two last ones are removed.
func (m *Manager) TerminationLog(pod *v1.Pod, container string, attempt uint32) (hostPath string, err error) {
	if err := checkName("container", container); err != nil {
		return "", err
	}
	root, err := m.openPod(pod.UID)
	if err != nil {
		return "", fmt.Errorf("make termination log of container %s in pod %s/%s: %w", container, pod.Namespace, pod.Name, err)
	}
	defer closeHandle(root)
	name := terminationLogName(pod, container, attempt)
	if err := createTerminationLog(root, name); err != nil {
		return "", fmt.Errorf("make termination log of container %s in pod %s/%s: %w", container, pod.Namespace, pod.Name, err)
	}
	if attempt >= keptTerminationLogs {
		if old := terminationLogName(pod, container, attempt-keptTerminationLogs); old != name {
			_ = root.Remove(old) // at worst an empty file stays until the pod goes
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

// terminationLogName returns the log's path beneath the pod's directory: like the kubelet's, eight hexadecimal digits.
func terminationLogName(pod *v1.Pod, container string, attempt uint32) string {
	hash := fnv.New32a()
	fmt.Fprintf(hash, "%s/%s/%d", pod.UID, container, attempt)
	return fmt.Sprintf("containers/%s/%08x", container, hash.Sum32())
}

// ReadTerminationMessage returns the last limit bytes of a termination log. hostPath is what the runtime reports for the container's
// mount: since the pod's author can have mounted something else there, only a regular file beneath the pods' directory is read, and no symbolic
// link is followed. A missing file is [fs.ErrNotExist].
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
	file, err := openRegular(m.podsDir, name, unix.RESOLVE_NO_SYMLINKS)
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

// openRegular opens a regular file beneath the directory dir for reading. Symbolic links are followed as long as they stay beneath dir, unless
// resolve says otherwise.
func openRegular(dir, name string, resolve uint64) (*os.File, error) {
	top, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer top.Close()
	path := filepath.Join(dir, name)
	fd, err := openBeneath(int(top.Fd()), name, unix.O_PATH, resolve)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	defer closeFD(fd)
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil {
		return nil, &fs.PathError{Op: "stat", Path: path, Err: err}
	}
	if stat.Mode&unix.S_IFMT != unix.S_IFREG {
		return nil, fmt.Errorf("%s is not a regular file", path)
	}
	// Opened for reading only now: opening a pipe or a device would have done something.
	return os.Open(fmt.Sprintf("/proc/self/fd/%d", fd))
}

// maxEnvFile bounds an environment file, in bytes: no process could have a larger environment.
const maxEnvFile = 2 << 20

// ReadEnvFile returns the content of a file of environment variables in a volume, for fileKeyRef. Containers wrote it: only a regular file is read, and no
// symbolic link leads out of the volume. A missing file is [fs.ErrNotExist].
func (m *Manager) ReadEnvFile(volume Mount, path string) (string, error) {
	if volume.HostPath == "" {
		return "", errors.New("the volume has no files on the node")
	}
	file, err := openRegular(volume.HostPath, path, 0)
	if err != nil {
		return "", err
	}
	defer file.Close()
	content, err := io.ReadAll(io.LimitReader(file, maxEnvFile+1))
	if err != nil {
		return "", err
	}
	if len(content) > maxEnvFile {
		return "", fmt.Errorf("%s is larger than %d bytes", file.Name(), maxEnvFile)
	}
	return string(content), nil
}

// WriteHosts makes the pod's /etc/hosts hold content, and returns its path. A file that is there is changed in place, because running
// containers have it mounted; equal content is not written again.
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
