package pod

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/berthd/berth/agent/pod/plan"
	"github.com/berthd/berth/cri"
	"github.com/berthd/berth/cri/logs"
	"github.com/berthd/berth/status"
)

// terminationMessages returns, by id, the termination messages of the containers that ended. Each
// message is read once, while its file exists, and dropped with its container. A message that
// cannot be read now is read again in the next sync. It is read also in a sync that is overtaken.
func (r *reporter) terminationMessages(s *podSync) map[string]string {
	messages := s.state.messages
	if s.Early {
		return messages // the messages of containers that ended just now may not be written yet
	}
	maps.DeleteFunc(messages, func(id, _ string) bool {
		return !slices.ContainsFunc(s.Observed.Containers, func(c *plan.Container) bool { return c.Id == id })
	})
	for _, c := range s.Observed.Containers {
		if _, known := messages[c.Id]; known || !c.Exited() {
			continue
		}
		var message string
		pod := s.Pod
		err := s.Briefly(context.Background(), "message/"+c.Id, messageFile(c), func(context.Context) (err error) {
			message, err = r.terminationMessage(pod, c)
			return err
		})
		if err != nil {
			s.Log.Debug("termination message not read", "container", c.Name(), "err", err)
			continue
		}
		messages[c.Id] = message
	}
	return messages
}

// messageFile returns the file on the host into which a container writes its message, or the log if
// there is none.
func messageFile(c *plan.Container) string {
	id, err := cri.ParseContainer(c.Labels, c.Annotations)
	if err == nil && id.TerminationMessagePath != "" {
		for _, m := range c.Mounts {
			if m.ContainerPath == id.TerminationMessagePath {
				return m.HostPath
			}
		}
	}
	return c.LogPath
}

// terminationMessage returns the message that an ended container left in its file or, if its policy
// says so, at the end of its log. A file that does not exist any more means an empty message. A
// file that cannot be read is an error.
func (r *reporter) terminationMessage(pod *v1.Pod, c *plan.Container) (string, error) {
	id, err := cri.ParseContainer(c.Labels, c.Annotations)
	if err != nil {
		return "", nil //nolint:nilerr // without usable labels there is no message to be had, and never will be
	}
	var file string
	for _, m := range c.Mounts {
		if m.ContainerPath != id.TerminationMessagePath || m.ContainerPath == "" {
			continue
		}
		file, err = r.deps.Volumes.ReadTerminationMessage(m.HostPath, status.MaxTerminationMessage)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
	}
	var tail []byte
	if status.FallbackToLogs(id.TerminationMessagePolicy, c.ExitCode, c.Reason, []byte(file)) {
		if tail, err = r.logTail(pod, c); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
	}
	return status.TerminationMessage([]byte(file), tail), nil
}

// logTailTimeout bounds the reading of a log's end for a termination message.
const logTailTimeout = 5 * time.Second

// logTail returns the last lines of an ended container's output; none if the log is not one of
// ours.
func (r *reporter) logTail(pod *v1.Pod, c *plan.Container) ([]byte, error) {
	root := r.cfg.PodLogsDir
	path, err := filepath.Rel(root, c.LogPath)
	if err != nil || c.LogPath == "" {
		return nil, nil // somebody else's container
	}
	ctx, cancel := context.WithTimeout(context.Background(), logTailTimeout)
	defer cancel()
	var out bytes.Buffer
	lines := int64(status.MaxTerminationLogLines)
	output, file := logs.Output{Stdout: &out, Stderr: &out}, logs.File{Root: root, Path: path}
	if err := logs.Read(ctx, output, file, logs.Options{Tail: &lines}, logs.Deps{Log: r.deps.Log}); err != nil {
		return nil, fmt.Errorf("reading the end of the log of container %s of pod %s/%s: %w", c.Name(), pod.Namespace,
			pod.Name, err)
	}
	return out.Bytes(), nil
}
