package server

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/berthd/berth/client/api"
	"github.com/berthd/berth/cri"
	"github.com/berthd/berth/internal/pods"
)

// noLog is the error of a log that is not there. It says which logs of the pod are there.
func (s *Server) noLog(pod *v1.Pod, text string) error {
	there := s.logsThere(pod)
	if len(there) == 0 {
		return failure(http.StatusNotFound, "%s; there is no log of pod %s", text, pods.FullName(pod))
	}
	return failure(http.StatusNotFound, "%s; there are logs of: %s", text, strings.Join(there, ", "))
}

// goneLog is the error of a log whose container the runtime does not have any more.
func (s *Server) goneLog(pod *v1.Pod, container string, previous bool) error {
	text := "the log of container " + container
	if previous {
		text += " before its last restart"
	}
	return s.noLog(pod, text+" is not there any more: that instance of it was removed")
}

// logsThere lists the containers of a pod that have logs on the disk, and those of whose earlier
// instances there are logs, too.
func (s *Server) logsThere(pod *v1.Pod) []string {
	var out []string
	for _, name := range api.ContainerNames(pod) {
		entries, _ := os.ReadDir(filepath.Join(cri.PodLogDir(s.cfg.PodLogsDir, cri.IDOf(pod)), name))
		attempts := map[int]bool{}
		for _, e := range entries {
			if n, ok := cri.ParseContainerLog(e.Name()); ok {
				attempts[n] = true
			}
		}
		switch len(attempts) {
		case 0:
		case 1:
			out = append(out, name)
		default:
			out = append(out, name+" (and with -p)")
		}
	}
	return out
}
