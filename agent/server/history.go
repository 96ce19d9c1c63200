package server

import (
	"context"
	"net/http"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berthd/berth/agent/pod/timeline"
	"github.com/berthd/berth/client/api"
)

// wantsPast reports whether a request reads the history, which is on the disk.
func wantsPast(r *http.Request) bool {
	return asked(r, api.Previous) || r.URL.Query().Get(api.Since) != ""
}

// eventsSince returns the events since a time, as a request gives it, the latest one last. Without
// a time these are the events that the agent has in memory.
func (s *Server) eventsSince(ctx context.Context, text string) ([]v1.Event, error) {
	now := s.backend.Events()
	if text == "" {
		return now, nil
	}
	since, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return nil, failure(http.StatusBadRequest, "%s: %v", api.Since, err)
	}
	var before []v1.Event
	if s.deps.History != nil {
		if before, err = s.deps.History.Events(ctx, since); err != nil {
			return nil, err
		}
	}
	known := map[string]bool{} // what is in memory has newer counts
	for i := range now {
		known[now[i].Namespace+"/"+now[i].Name] = true
	}
	var out []v1.Event
	for i := range before {
		if !known[before[i].Namespace+"/"+before[i].Name] {
			out = append(out, before[i])
		}
	}
	for i := range now {
		if !now[i].LastTimestamp.Time.Before(since) {
			out = append(out, now[i])
		}
	}
	return out, nil
}

// previous answers with the last life of a pod before the present one.
func (s *Server) previous(w http.ResponseWriter, r *http.Request) {
	namespace, name := r.PathValue("namespace"), r.PathValue("pod")
	var current types.UID
	if pod, err := s.podOf(r); err == nil {
		current = pod.UID
	}
	if s.deps.History == nil {
		fail(w, http.StatusNotFound, "no history of pods is kept")
		return
	}
	names := []string{name, name + "-" + strings.ToLower(s.cfg.Node)}
	past, err := s.deps.History.Previous(r.Context(), namespace, names, current)
	switch {
	case err != nil:
		failWith(w, err)
	case past == nil:
		fail(w, http.StatusNotFound, "the history has no earlier life of pod %s/%s", namespace, name)
	default:
		answer(w, api.Why{
			Namespace: past.Namespace, Name: past.Name, UID: past.UID, Status: past.Status, Until: &past.Until,
			Steps: stepsOf(past.Entries), LastError: lastError(past.Entries),
		})
	}
}

// stepsOf converts a timeline.
func stepsOf(entries []timeline.Entry) []api.Step {
	out := make([]api.Step, 0, len(entries))
	for _, e := range entries {
		out = append(out, api.Step{
			Step:    e.Step,
			Begin:   e.Begin,
			End:     e.End,
			Last:    e.Last,
			Count:   e.Count,
			Outcome: string(e.Outcome),
			Message: e.Message,
		})
	}
	return out
}
