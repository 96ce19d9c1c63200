package server

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/berthd/berth/agent/source"
	"github.com/berthd/berth/client/api"
	"github.com/berthd/berth/internal/pods"
)

// The states in which [api.NodeStatus] counts pods.
const (
	podRunning     = "Running"
	podNotReady    = "NotReady"
	podTerminating = "Terminating"
)

// status answers with the state of the node as a whole.
func (s *Server) status(w http.ResponseWriter, r *http.Request) {
	answer(w, s.nodeStatus(r.Context()))
}

// notes answers with what people must know before they read about pods.
func (s *Server) notes(w http.ResponseWriter, r *http.Request) {
	notes := s.backend.Notes(r.Context())
	answer(w, &notes)
}

func (s *Server) nodeStatus(ctx context.Context) *api.NodeStatus {
	out := s.backend.Node(ctx)
	out.Node, out.Version, out.Started = s.cfg.Node, s.cfg.Version, s.began
	out.RootDir, out.Runtime.Endpoint, out.Pods = s.cfg.RootDir, s.cfg.Endpoint, map[string]int{}
	var refused []source.Result
	for _, v := range s.backend.Validated() {
		if v.Accepted {
			out.Manifests.Accepted++
		} else {
			out.Manifests.Refused++
			refused = append(refused, v)
		}
	}
	all := s.backend.Pods()
	for _, pod := range all {
		out.Pods[stateOf(pod)]++
	}
	out.Attention = slices.Concat(nodeFaults(&out), manifestFaults(refused), archiveFaults(out.Archives),
		s.podFaults(all, time.Now()))
	return &out
}

// stateOf returns the state in which a pod is counted.
func stateOf(pod *v1.Pod) string {
	switch {
	case pods.Terminal(pod.Status.Phase) && !pods.Held(pod):
		return string(pod.Status.Phase)
	case pod.DeletionTimestamp != nil:
		return podTerminating
	case pods.Held(pod):
		return pod.Status.Reason
	case pod.Status.Phase != v1.PodRunning:
		return string(v1.PodPending)
	}
	if ready := conditionOf(pod, v1.PodReady); ready == nil || ready.Status != v1.ConditionTrue {
		return podNotReady
	}
	return podRunning
}

// nodeFaults says what about the node itself needs a person.
func nodeFaults(st *api.NodeStatus) []string {
	var out []string
	switch rt := &st.Runtime; {
	case rt.SilentSince != nil:
		out = append(out, fmt.Sprintf("the container runtime at %s does not answer since %s: %s", rt.Endpoint,
			rt.SilentSince.Local().Format(time.DateTime), rt.Error))
	case rt.Error != "":
		out = append(out, rt.Error)
	default:
		out = append(out, rt.Faults...)
	}
	if c := st.Cluster; c != nil && c.Late {
		since := "at all"
		if !c.Renewed.IsZero() {
			since = "since " + c.Renewed.Local().Format(time.DateTime)
		}
		out = append(out, fmt.Sprintf("the API server %s has not accepted the node's lease %s", c.Server, since))
	}
	if len(st.Pressure) > 0 {
		out = append(out, fmt.Sprintf(`the node runs short (%s): pods are evicted, and new ones refused: see "berth events"`,
			strings.Join(st.Pressure, ", ")))
	}
	if st.Config != nil {
		out = append(out, st.Config.Problem()+": "+st.Config.Remedy())
	}
	if st.Drain.State != "" && st.Drain.State != api.Open {
		out = append(out, `the node is drained: pods run again after "berth drain --undo"`)
	}
	return out
}

// manifestFaults names the refused manifests, each file with its first fault.
func manifestFaults(refused []source.Result) []string {
	var out []string
	seen := map[string]bool{}
	for _, v := range refused {
		if seen[v.File] {
			continue
		}
		seen[v.File] = true
		where := ""
		if v.Line > 0 {
			where = fmt.Sprintf("line %d", v.Line)
		}
		why := v.Message
		if !strings.HasPrefix(why, v.Field) {
			why = joinWords(": ", v.Field, why)
		}
		why = joinWords(": ", where, why)
		out = append(out, fmt.Sprintf(`manifest %s: see "berth manifests"`, cut(joinWords(": refused: ", v.File, why))))
	}
	return some(out)
}

// archiveFaults names the image archives that could not be imported.
func archiveFaults(archives []api.Archive) []string {
	var out []string
	for _, a := range archives {
		if a.State == api.ArchiveFailed {
			out = append(out, fmt.Sprintf("image archive %s: replace the file, or touch it to try again",
				cut(joinWords(": not imported: ", a.Path, a.Error))))
		}
	}
	return some(out)
}

// maxNamed is how many things of one kind are named.
const maxNamed = 10

// some returns the first names, and how many more there are.
func some(names []string) []string {
	if len(names) <= maxNamed {
		return names
	}
	return append(names[:maxNamed:maxNamed], fmt.Sprintf("and %d more", len(names)-maxNamed))
}
