package server

import (
	"encoding/json"
	"errors"
	"net/http"

	v1 "k8s.io/api/core/v1"
)

// The errors of a backend that adds ephemeral containers.
var (
	// ErrInvalid is the error of a container that the API would not accept.
	ErrInvalid = errors.New("invalid")
	// ErrPodOver is the error of a pod that takes no containers any more.
	ErrPodOver = errors.New("the pod takes no more containers")
)

// ephemeral adds the ephemeral container of the request's body to a running pod, and answers once it is kept.
func (s *Server) ephemeral(w http.ResponseWriter, r *http.Request) {
	pod, err := s.find(r.PathValue("namespace"), r.PathValue("pod"), "")
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
	case errors.Is(err, ErrInvalid):
		fail(w, http.StatusUnprocessableEntity, "%v", err)
	case errors.Is(err, ErrPodOver):
		fail(w, http.StatusConflict, "pod %s/%s: %v", pod.Namespace, pod.Name, err)
	case err != nil:
		failWith(w, err)
	default:
		answer(w, c)
	}
}
