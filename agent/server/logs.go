package server

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berthd/berth/client/api"
	"github.com/berthd/berth/internal/pieces"
	"github.com/berthd/berth/internal/pods"
)

// containerLogs answers with a container's log, according to the v1.PodLogOptions in the query.
func (s *Server) containerLogs(w http.ResponseWriter, r *http.Request) {
	opts, err := logOptions(r.URL.Query())
	if err != nil {
		failPlainly(w, r, err)
		return
	}
	pod, err := s.podOf(r)
	if err != nil {
		failPlainly(w, r, err)
		return
	}
	in, err := s.wanted(r.Context(), pod, r.PathValue("container"), opts)
	if err != nil {
		failPlainly(w, r, err)
		return
	}
	w.Header().Set("Content-Type", plainText)
	w.Header().Set("X-Content-Type-Options", "nosniff")
	out := newLogWriter(w, opts.Follow, plainTimeout)
	defer out.end()
	out.begin()
	err = s.readLogs(r.Context(), out, pod, r.PathValue("container"), in, opts)
	switch {
	case err == nil:
	case r.Context().Err() != nil || out.written:
		if r.Context().Err() == nil {
			s.log.Warn("container log broken off", "pod", pods.FullName(pod), "container", r.PathValue("container"),
				"err", err)
		}
		panic(http.ErrAbortHandler) // the reader must see that this is not the end of the log
	case errors.Is(err, fs.ErrNotExist):
		failPlainly(w, r, s.noLog(pod,
			fmt.Sprintf("the log of container %q in pod %q is not there: %v", r.PathValue("container"), pod.Name, err)))
	default:
		failPlainly(w, r, failure(http.StatusInternalServerError, "%v", err))
	}
}

// wanted returns the instance of a container whose log is requested.
func (s *Server) wanted(ctx context.Context, pod *v1.Pod, container string, opts *v1.PodLogOptions) (instance, error) {
	id, err := logContainer(pod, container, opts.Previous)
	if err != nil {
		return instance{}, err
	}
	in, err := s.instance(ctx, id)
	switch {
	case errdefs.IsUnavailable(err) && !opts.Follow:
		return s.filed(pod, container, opts.Previous), nil
	case errdefs.IsNotFound(err):
		return instance{}, s.goneLog(pod, container, opts.Previous)
	}
	return in, err
}

// runs reports whether a container runs or may still be started.
func (s *Server) runs(ctx context.Context, id string) (bool, error) {
	status, err := s.containers.status(ctx, id)
	if errdefs.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return status.State == runtimeapi.ContainerState_CONTAINER_RUNNING ||
		status.State == runtimeapi.ContainerState_CONTAINER_CREATED, nil
}

// logContainer returns the id of the instance whose log is requested: the running one, or the one
// that ended last. With previous, it returns the one before.
func logContainer(pod *v1.Pod, name string, previous bool) (string, error) {
	if err := hasContainer(pod, name); err != nil {
		return "", err
	}
	status := containerStatus(pod, name)
	if status == nil {
		return "", failure(http.StatusBadRequest, "container %q in pod %q is not available", name, pod.Name)
	}
	last := ""
	if t := status.LastTerminationState.Terminated; t != nil {
		last = t.ContainerID
	}
	var id string
	switch {
	case previous && last == "":
		return "", failure(http.StatusBadRequest, "previous terminated container %q in pod %q not found", name,
			pod.Name)
	case previous:
		id = last
	case status.State.Running != nil:
		id = status.ContainerID
	case status.State.Terminated != nil && status.State.Terminated.ContainerID != "":
		id = status.State.Terminated.ContainerID
	case last != "":
		id = last
	case status.State.Waiting != nil:
		return "", failure(http.StatusBadRequest, "container %q in pod %q is waiting to start: %s", name, pod.Name,
			waitWord(status.State.Waiting))
	default:
		return "", failure(http.StatusBadRequest, "container %q in pod %q is waiting to start - no logs yet", name,
			pod.Name)
	}
	return rawID(id), nil
}

// waitWord says why a container does not run yet. For images, it uses the kubelet's words.
func waitWord(w *v1.ContainerStateWaiting) string {
	switch w.Reason {
	case "ErrImagePull":
		return "image can't be pulled"
	case "ImagePullBackOff":
		return "trying and failing to pull image"
	}
	return w.Reason
}

// rawID is a container's id without the name of the runtime.
func rawID(id string) string {
	if _, raw, ok := strings.Cut(id, "://"); ok {
		return raw
	}
	return id
}

// hasContainer returns an error for a name that no container of the pod has.
func hasContainer(pod *v1.Pod, name string) error {
	names := api.ContainerNames(pod)
	if slices.Contains(names, name) {
		return nil
	}
	return failure(http.StatusNotFound, "container %q not found in pod %q; it has %s", name, pod.Name,
		strings.Join(names, ", "))
}

func containerStatus(pod *v1.Pod, name string) *v1.ContainerStatus {
	for _, list := range [][]v1.ContainerStatus{
		pod.Status.ContainerStatuses, pod.Status.InitContainerStatuses, pod.Status.EphemeralContainerStatuses,
	} {
		for i := range list {
			if list[i].Name == name {
				return &list[i]
			}
		}
	}
	return nil
}

// logOptions parses the v1.PodLogOptions of the query.
func logOptions(query url.Values) (*v1.PodLogOptions, error) {
	if tail := query.Get("tail"); tail != "" { // the parameter's old name
		if tail == "all" {
			query.Del("tailLines")
		} else {
			query.Set("tailLines", tail)
		}
	}
	o := &v1.PodLogOptions{}
	p := queryParser{query: query}
	p.flag("follow", &o.Follow)
	p.flag("previous", &o.Previous)
	p.flag("timestamps", &o.Timestamps)
	p.number("tailLines", 0, &o.TailLines)
	p.number("limitBytes", 1, &o.LimitBytes)
	p.number("sinceSeconds", 1, &o.SinceSeconds)
	if text := query.Get("sinceTime"); text != "" {
		at, err := time.Parse(time.RFC3339, text)
		if err != nil {
			p.fail(http.StatusBadRequest, "sinceTime=%q: must be a time as in RFC 3339, such as 2006-01-02T15:04:05Z",
				text)
		}
		o.SinceTime = &metav1.Time{Time: at}
	}
	if o.SinceSeconds != nil && o.SinceTime != nil {
		p.fail(http.StatusUnprocessableEntity, "only one of sinceSeconds and sinceTime may be given")
	}
	switch stream := query.Get("stream"); stream {
	case "", v1.LogStreamAll:
	case v1.LogStreamStdout, v1.LogStreamStderr:
		o.Stream = &stream
		if o.TailLines != nil {
			p.fail(http.StatusUnprocessableEntity, "tailLines and stream=%s may not be given together", stream)
		}
	default:
		p.fail(http.StatusUnprocessableEntity, "stream=%q: must be All, Stdout or Stderr", stream)
	}
	return o, p.err
}

// queryParser parses parameters and keeps the first error.
type queryParser struct {
	query url.Values
	err   error
}

func (p *queryParser) fail(code int, format string, args ...any) {
	if p.err == nil {
		p.err = failure(code, format, args...)
	}
}

func (p *queryParser) flag(name string, into *bool) {
	values, ok := p.query[name]
	if !ok {
		return
	}
	value := values[0]
	if value == "" {
		*into = true
		return
	}
	on, err := strconv.ParseBool(value)
	if err != nil {
		p.fail(http.StatusBadRequest, "%s=%q: must be true or false", name, value)
	}
	*into = on
}

func (p *queryParser) number(name string, least int64, into **int64) {
	value := p.query.Get(name)
	if value == "" {
		return
	}
	n, err := strconv.ParseInt(value, 10, 64)
	switch {
	case err != nil:
		p.fail(http.StatusBadRequest, "%s=%q: must be a number", name, value)
	case n < least:
		p.fail(http.StatusUnprocessableEntity, "%s=%d: must be at least %d", name, n, least)
	}
	*into = &n
}

// logWriter sends each piece at once if the log is followed. Of a log that is not, each piece must
// be sent within a time: who reads nothing of it for longer does not want it.
type logWriter struct {
	w       http.ResponseWriter
	flush   bool
	end     func() // ends the answer
	written bool
	bytes   int64 // bytes written so far
}

func newLogWriter(w http.ResponseWriter, follow bool, within time.Duration) *logWriter {
	if follow {
		return &logWriter{w: w, flush: true, end: func() {}}
	}
	limited := pieces.New(w, within)
	return &logWriter{w: limited, end: limited.End}
}

// begin sends the header of a followed log, so that the reader knows that it is connected.
func (l *logWriter) begin() {
	if l.flush {
		l.written = true
		l.send()
	}
}

// Write writes a piece of the log.
func (l *logWriter) Write(p []byte) (int, error) {
	l.written = true
	n, err := l.w.Write(p)
	l.bytes += int64(n)
	if l.flush && err == nil {
		l.send()
	}
	return n, err
}

func (l *logWriter) send() {
	_ = http.NewResponseController(l.w).Flush() // who has gone is found when a piece is written
}
