package server

import (
	"encoding/json"
	"errors"
	"net/http"

	v1 "k8s.io/api/core/v1"

	podengine "github.com/berthd/berth/agent/pod"
)

// ephemeral adds the ephemeral container in the request's body to a running pod. It answers after
// the container was recorded.
func (s *Server) ephemeral(w http.ResponseWriter, r *http.Request) {
	pod, err := s.podOf(r)
	if err != nil {
		failWith(w, err)
		return
	}
	var c v1.EphemeralContainer
	body := json.NewDecoder(r.Body)
	body.DisallowUnknownFields()
	if err := body.Decode(&c); err != nil {
		fail(w, http.StatusBadRequest, "reading the ephemeral container: %v", err)
		return
	}
	switch err := s.backend.AddEphemeral(r.Context(), pod.UID, &c); {
	case errors.Is(err, podengine.ErrInvalid):
		fail(w, http.StatusUnprocessableEntity, "%v", err)
	case errors.Is(err, podengine.ErrOver):
		fail(w, http.StatusConflict, "pod %s/%s: %v", pod.Namespace, pod.Name, err)
	case err != nil:
		failWith(w, err)
	default:
		answer(w, c)
	}
}
