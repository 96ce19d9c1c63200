package cri

import (
	"path/filepath"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

// These are the default directories of logs. Log collectors rely on both.
const (
	DefaultPodLogsDir       = "/var/log/pods"
	DefaultContainerLogsDir = "/var/log/containers"
)

const (
	// maxElement is the longest file name on Linux, in bytes.
	maxElement = 255
	// logSuffix is the suffix of a log file and of the links to it.
	logSuffix = ".log"
	// minIDLength is how many characters of a container's ID a link must have to identify the
	// container, as in the kubelet.
	minIDLength = 6
)

// PodLogDir returns the directory of a pod's logs, <podLogsDir>/<namespace>_<name>_<uid>.
func PodLogDir(podLogsDir string, pod PodID) string {
	return filepath.Join(podLogsDir, pod.Namespace+"_"+pod.Name+"_"+string(pod.UID))
}

// ParsePodLogDir reads the name (not the path) of a directory that [PodLogDir] made. ok is false
// for any other name: such a directory is unmanaged.
func ParsePodLogDir(name string) (pod PodID, ok bool) {
	// Neither a namespace nor a pod's name can have an underscore.
	parts := strings.SplitN(name, "_", 3)
	if len(parts) != 3 {
		return PodID{}, false
	}
	pod = PodID{Namespace: parts[0], Name: parts[1], UID: types.UID(parts[2])}
	if !pod.safe() {
		return PodID{}, false
	}
	return pod, true
}

// ContainerLogPath returns the path of a container's log beneath its pod's log directory,
// <container>/<attempt>.log.
func ContainerLogPath(container string, attempt int) string {
	return filepath.Join(container, strconv.Itoa(attempt)+logSuffix)
}

// ParseContainerLog reads the attempt from the name of a log file: <attempt>.log, or a rotated
// file, whose name continues with a dot.
func ParseContainerLog(name string) (attempt int, ok bool) {
	digits, rest, found := strings.Cut(name, logSuffix)
	if !found || rest != "" && rest[0] != '.' || strings.Trim(digits, "0123456789") != "" {
		return 0, false
	}
	n, err := strconv.ParseInt(digits, 10, 32)
	if err != nil {
		return 0, false
	}
	return int(n), true
}

// LogSymlink returns the path of the link by which collectors find a container's log,
// <containerLogsDir>/<pod>_<namespace>_<container>-<id>.log. A name that is too long for the file
// system is cut before ".log".
func LogSymlink(containerLogsDir string, pod PodID, container, id string) string {
	name := pod.Name + "_" + pod.Namespace + "_" + container + "-" + id
	name = name[:min(len(name), maxElement-len(logSuffix))]
	return filepath.Join(containerLogsDir, name+logSuffix)
}

// ParseLogSymlink reads the container's ID from the name (not the path) of a link that [LogSymlink]
// made. If the link's name was cut, id is the beginning of the real ID. ok is false if less than 6
// characters of the ID are left.
func ParseLogSymlink(name string) (id string, ok bool) {
	stem, found := strings.CutSuffix(name, logSuffix)
	if !found {
		return "", false
	}
	id = stem[strings.LastIndexByte(stem, '-')+1:]
	if len(id) < minIDLength || len(id) == len(stem) {
		return "", false
	}
	return id, true
}
