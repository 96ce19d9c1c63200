package server

import (
	"context"
	"net/http"
	"path/filepath"
	"time"

	"github.com/containerd/errdefs"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berthd/berth/cri"
	"github.com/berthd/berth/cri/logs"
	"github.com/berthd/berth/internal/pods"
	"github.com/berthd/berth/status"
)

// instance is one instance of a container, and its log.
type instance struct {
	id      string
	attempt uint32
	file    logs.File
}

// instance asks the runtime for an instance. The instance's log must be below the directory of pod
// logs.
func (s *Server) instance(ctx context.Context, id string) (instance, error) {
	st, err := s.containers.status(ctx, id)
	if err != nil {
		return instance{}, err
	}
	if st.LogPath == "" {
		return instance{}, failure(http.StatusNotFound, "container %s has no log", id)
	}
	path, err := filepath.Rel(s.cfg.PodLogsDir, st.LogPath)
	if err != nil || !filepath.IsLocal(path) {
		return instance{}, failure(http.StatusNotFound, "the log %s of container %s is not in %s", st.LogPath, id,
			s.cfg.PodLogsDir)
	}
	return instance{
		id:      id,
		attempt: st.GetMetadata().GetAttempt(),
		file:    logs.File{Root: s.cfg.PodLogsDir, Path: path},
	}, nil
}

// filed returns the instance whose log is requested, by the names of its files: the last one, or
// the one before. It is for a runtime that does not answer. The number of a container's restarts is
// that of its last instance.
func (s *Server) filed(pod *v1.Pod, container string, previous bool) instance {
	status := containerStatus(pod, container)
	attempt := int(status.RestartCount)
	if previous && status.State.Waiting == nil {
		attempt--
	}
	dir := filepath.Base(cri.PodLogDir(s.cfg.PodLogsDir, cri.IDOf(pod)))
	path := filepath.Join(dir, cri.ContainerLogPath(container, attempt))
	return instance{attempt: uint32(max(attempt, 0)), file: logs.File{Root: s.cfg.PodLogsDir, Path: path}}
}

// readLogs writes the log of an instance to out. If the log is followed, readLogs continues with
// the later instances, until no other instance will start.
func (s *Server) readLogs(
	ctx context.Context, out *logWriter, pod *v1.Pod, container string, in instance, asked *v1.PodLogOptions,
) error {
	opts := logs.OptionsFrom(asked, time.Now())
	for {
		err := logs.Read(ctx, logs.Output{Stdout: out, Stderr: out}, in.file, opts, logs.Deps{
			Running: func(ctx context.Context) (bool, error) { return s.runs(ctx, in.id) },
			Log:     s.log,
		})
		if err != nil || !asked.Follow || asked.Previous {
			return err
		}
		opts.Tail = nil
		if asked.LimitBytes != nil {
			left := *asked.LimitBytes - out.bytes
			if left <= 0 {
				return nil
			}
			opts.LimitBytes = &left
		}
		next, err := s.successor(ctx, pod, container, in)
		if err != nil || next == nil {
			return err
		}
		in = *next
	}
}

// successor waits for the instance after one that has ended; nil if none will start.
func (s *Server) successor(ctx context.Context, pod *v1.Pod, container string, in instance) (*instance, error) {
	changed, stop := s.backend.WatchPods()
	defer stop()
	for {
		id, err := s.after(ctx, pod, container, in.attempt)
		// a runtime that does not answer now will answer later
		if err != nil && !errdefs.IsUnavailable(err) {
			return nil, err
		}
		if id != "" {
			next, err := s.instance(ctx, id)
			if errdefs.IsNotFound(err) {
				continue
			}
			return &next, err
		}
		goesOn, err := s.goesOn(ctx, pod, container, in.id)
		if err != nil || !goesOn {
			return nil, err
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-changed:
		}
	}
}

// after returns the id of the first started instance after an attempt; empty if there is none.
func (s *Server) after(ctx context.Context, pod *v1.Pod, container string, attempt uint32) (id string, err error) {
	list, err := s.deps.Runtime.ListContainers(ctx, &runtimeapi.ContainerFilter{
		LabelSelector: map[string]string{cri.LabelPodUID: string(pod.UID), cri.LabelContainerName: container},
	})
	first := uint32(0)
	for _, c := range list {
		n := c.GetMetadata().GetAttempt()
		named := c.Labels[cri.LabelPodUID] == string(pod.UID) && c.Labels[cri.LabelContainerName] == container
		if named && n > attempt && (id == "" || n < first) && c.State != runtimeapi.ContainerState_CONTAINER_CREATED {
			id, first = c.Id, n
		}
	}
	return id, err
}

// goesOn reports whether a container whose instance has ended will have another instance.
func (s *Server) goesOn(ctx context.Context, pod *v1.Pod, container, id string) (bool, error) {
	now, err := s.find(pod.Namespace, pod.Name, string(pod.UID), pods.Static)
	if err != nil || now.DeletionTimestamp != nil || pods.Terminal(now.Status.Phase) || pods.Held(now) {
		return false, nil //nolint:nilerr // a pod that is gone or stopped starts nothing
	}
	st, err := s.deps.Runtime.ContainerStatus(ctx, id)
	switch {
	case errdefs.IsNotFound(err), errdefs.IsUnavailable(err):
		return true, nil // what came of it shows in the pod's status
	case err != nil:
		return false, err
	}
	return status.Restarts(now, container, st.ExitCode), nil
}
