package server

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/containerd/errdefs"
)

// checkpoint makes the runtime write a container's state into a file below the root directory, and
// answers with the file's path: POST /checkpoint/{namespace}/{pod}/{container}?timeout=SECONDS.
// Only one checkpoint is made at a time, because each takes as much of the disk as the container
// has memory.
func (s *Server) checkpoint(w http.ResponseWriter, r *http.Request) {
	select {
	case s.checkpointing <- struct{}{}:
		defer func() { <-s.checkpointing }()
	default:
		w.Header().Set("Retry-After", "1")
		fail(w, http.StatusTooManyRequests, "another checkpoint is under way: try again later")
		return
	}
	location, err := s.checkpointOf(r)
	if err != nil {
		failWith(w, err)
		return
	}
	sendWithin(w, plainTimeout)
	answer(w, map[string][]string{"items": {location}})
}

// checkpointOf makes the checkpoint that a request asks for, and returns its path.
func (s *Server) checkpointOf(r *http.Request) (string, error) {
	namespace, name, container := r.PathValue("namespace"), r.PathValue("pod"), r.PathValue("container")
	pod, err := s.podOf(r)
	if err == nil {
		err = hasContainer(pod, container)
	}
	var timeout time.Duration
	if values := r.URL.Query()["timeout"]; err == nil && len(values) > 0 {
		seconds, parseErr := strconv.ParseInt(values[len(values)-1], 10, 32)
		if parseErr != nil || seconds < 0 {
			err = failure(http.StatusNotFound, "cannot parse value of timeout parameter: %q is no number of seconds",
				values[len(values)-1])
		}
		timeout = time.Duration(seconds) * time.Second
	}
	if err != nil {
		return "", err
	}
	_, id, err := s.running(r)
	if err == nil {
		err = os.MkdirAll(s.cfg.CheckpointsDir, 0o700) // checkpoints contain what was in memory
	}
	location := filepath.Join(s.cfg.CheckpointsDir,
		fmt.Sprintf("checkpoint-%s_%s-%s-%s.tar", name, namespace, container, time.Now().Format(time.RFC3339)))
	if err == nil {
		err = s.deps.Runtime.CheckpointContainer(context.WithoutCancel(r.Context()), id, location, timeout)
	}
	switch {
	case errdefs.IsNotImplemented(err):
		return "", failure(http.StatusInternalServerError,
			"checkpointing of %s/%s/%s failed (the container runtime has no checkpoints: %v)", namespace, name,
			container, err)
	case err != nil:
		return "", failure(http.StatusInternalServerError, "checkpointing of %s/%s/%s failed (%v)", namespace, name,
			container, err)
	}
	return location, nil
}
