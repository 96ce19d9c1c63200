package server

import (
	"encoding/json"
	"net/http"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/berthd/berth/client/api"
	"github.com/berthd/berth/internal/pods"
)

// admission answers which pods of the request's body the agent would refuse. Nothing is decided.
func (s *Server) admission(w http.ResponseWriter, r *http.Request) {
	var req api.AdmissionRequest
	if err := json.NewDecoder(r.Body).Decode(&req); err != nil {
		fail(w, http.StatusBadRequest, "reading the pods: %v", err)
		return
	}
	wanted := make([]*v1.Pod, 0, len(req.Pods))
	for i := range req.Pods {
		wanted = append(wanted, &req.Pods[i])
	}
	refused := s.backend.Try(wanted, func(pod *v1.Pod) bool { return slices.Contains(req.Leaving, pods.FullName(pod)) })
	out := api.Admission{Refused: []api.Refusal{}}
	for _, pod := range wanted {
		r := refused[pod.UID]
		if r == nil {
			continue
		}
		message := r.Message
		if r.Detail != "" {
			message += " (" + r.Detail + ")"
		}
		out.Refused = append(out.Refused, api.Refusal{
			Namespace: pod.Namespace, Name: pod.Name, Reason: r.Reason, Message: message,
		})
	}
	answer(w, out)
}
