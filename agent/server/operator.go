package server

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"

	v1 "k8s.io/api/core/v1"

	"github.com/berthd/berth/agent/desired/stopped"
	"github.com/berthd/berth/agent/node/runtimestate"
	podengine "github.com/berthd/berth/agent/pod"
	"github.com/berthd/berth/client/api"
)

// Operator restarts, stops and starts pods; *stopped.Operator does.
type Operator interface {
	// Restart restarts containers of a pod, all that can if names is empty, and returns which. The
	// error pod.ErrNotRestarted says why none restarts.
	Restart(ctx context.Context, pod *v1.Pod, names []string, grace *int64) ([]string, error)
	// Stop begins to stop a pod, which stays stopped until Start; Start reports whether the pod was
	// stopped, or had ended. The error stopped.ErrRefused says what to do instead.
	Stop(pod *v1.Pod, grace *int64) error
	Start(ctx context.Context, pod *v1.Pod) (was bool, err error)
}

// addOperator adds the routes by which an operator restarts, stops and starts pods; only the socket
// has them.
func (s *Server) addOperator(mux *mux) {
	const pod = "POST " + api.PathPods + "/{namespace}/{pod}/"
	mux.Handle(pod+api.Restart, s.slow("berth", s.restart))
	mux.Handle(pod+api.Stop, s.quick("berth", s.stop))
	mux.Handle(pod+api.Start, s.quick("berth", s.start))
}

// restart restarts containers of a pod. It answers after the request is on record.
func (s *Server) restart(w http.ResponseWriter, r *http.Request) {
	var req api.RestartRequest
	pod, err := s.operated(r, &req)
	if err == nil {
		err = checkGrace(req.GraceSeconds)
	}
	if err != nil {
		failWith(w, err)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), plainTimeout/2)
	defer cancel()
	names, err := s.deps.Operator.Restart(ctx, pod, req.Containers, req.GraceSeconds)
	if err != nil {
		failOperation(w, pod, err)
		return
	}
	answer(w, api.Restarted{Containers: names})
}

// stop begins to stop a pod.
func (s *Server) stop(w http.ResponseWriter, r *http.Request) {
	var req api.StopRequest
	pod, err := s.operated(r, &req)
	if err == nil {
		err = checkGrace(req.GraceSeconds)
	}
	if err == nil {
		err = s.deps.Operator.Stop(pod, req.GraceSeconds)
	}
	if err != nil {
		failOperation(w, pod, err)
		return
	}
	answer(w, api.Operated{Changed: true})
}

// start lets a pod run again that was stopped, or has ended.
func (s *Server) start(w http.ResponseWriter, r *http.Request) {
	pod, err := s.operated(r, &struct{}{})
	if err != nil {
		failWith(w, err)
		return
	}
	was, err := s.deps.Operator.Start(r.Context(), pod)
	if err != nil {
		failOperation(w, pod, err)
		return
	}
	answer(w, api.Operated{Changed: was})
}

// operated returns the pod of a request, and reads the request's body, which may be empty.
func (s *Server) operated(r *http.Request, req any) (*v1.Pod, error) {
	pod, err := s.podOf(r)
	if err != nil {
		return nil, err
	}
	if err := json.NewDecoder(r.Body).Decode(req); err != nil && !errors.Is(err, io.EOF) {
		return nil, failure(http.StatusBadRequest, "reading the request: %v", err)
	}
	return pod, nil
}

// checkGrace returns an error for a negative grace period.
func checkGrace(seconds *int64) error {
	if seconds != nil && *seconds < 0 {
		return failure(http.StatusBadRequest, "graceSeconds is %d: it must not be negative", *seconds)
	}
	return nil
}

// failOperation answers with an error: 409 if the pod's state or source forbids the operation, 503
// if the runtime does not answer.
func failOperation(w http.ResponseWriter, pod *v1.Pod, err error) {
	silence := (*runtimestate.Silence)(nil)
	switch {
	case errors.As(err, &silence):
		fail(w, http.StatusServiceUnavailable, "pod %s/%s: %v", pod.Namespace, pod.Name, err)
	case errors.Is(err, stopped.ErrRefused):
		fail(w, http.StatusConflict, "%v", err)
	case errors.Is(err, podengine.ErrNotRestarted):
		fail(w, http.StatusConflict, "pod %s/%s: %v", pod.Namespace, pod.Name, err)
	default:
		failWith(w, err)
	}
}
