package server

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berthd/berth/client/api"
	"github.com/berthd/berth/cri"
	"github.com/berthd/berth/internal/pods"
	"github.com/berthd/berth/internal/retry"
)

// podOf returns the pod that a request names. A static pod and a pod of the API server may have the
// same name. A caller of the API's port, which alone has TLS, comes from the API server and means
// its pod: what it may do there is no right to the static pod. All others mean the static pod.
func (s *Server) podOf(r *http.Request) (*v1.Pod, error) {
	preferred := pods.Static
	if r.TLS != nil {
		preferred = pods.FromAPI
	}
	return s.find(r.PathValue("namespace"), r.PathValue("pod"), r.PathValue("uid"), preferred)
}

// find returns a pod by namespace, name and, if given, UID. Of several it returns a preferred one.
// If a terminating pod and its successor have the same name, find returns the successor.
func (s *Server) find(namespace, name, uid string, preferred func(*v1.Pod) bool) (*v1.Pod, error) {
	var found *v1.Pod
	for _, pod := range s.backend.Pods() {
		if pod.Namespace != namespace || pod.Name != name || uid != "" && string(pod.UID) != uid {
			continue
		}
		if found == nil || preferred(pod) && !preferred(found) ||
			found.DeletionTimestamp != nil && preferred(pod) == preferred(found) {
			found = pod
		}
	}
	if found == nil {
		return nil, failure(http.StatusNotFound, "pod %q does not exist in namespace %q on this node", name, namespace)
	}
	return found, nil
}

// pods answers with all pods of the node and their statuses.
func (s *Server) pods(w http.ResponseWriter, _ *http.Request) {
	data, err := s.podsAnswer.get(func() any { return podList(s.backend.Pods()) })
	answerJSON(w, data, err)
}

func podList(pods []*v1.Pod) v1.PodList {
	list := v1.PodList{
		TypeMeta: metav1.TypeMeta{Kind: "PodList", APIVersion: "v1"}, Items: make([]v1.Pod, 0, len(pods)),
	}
	for _, pod := range pods {
		list.Items = append(list.Items, *pod)
	}
	return list
}

// runningPods answers with the pods that run in the runtime, with their identity, containers and
// images only.
func (s *Server) runningPods(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), plainTimeout/2)
	defer cancel()
	containers, err := s.deps.Runtime.ListContainers(ctx, &runtimeapi.ContainerFilter{
		State: &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_RUNNING},
	})
	if err != nil {
		failWith(w, err)
		return
	}
	byUID := map[types.UID]*v1.Pod{}
	for _, c := range containers {
		id, err := cri.ParseContainer(c.Labels, c.Annotations)
		if err != nil && id.Name == "" {
			continue // the container is unmanaged
		}
		pod := byUID[id.Pod.UID]
		if pod == nil {
			pod = &v1.Pod{ObjectMeta: metav1.ObjectMeta{
				UID:       id.Pod.UID,
				Namespace: id.Pod.Namespace,
				Name:      id.Pod.Name,
			}}
			byUID[id.Pod.UID] = pod
		}
		pod.Spec.Containers = append(pod.Spec.Containers, v1.Container{Name: id.Name, Image: c.GetImage().GetImage()})
	}
	pods := make([]*v1.Pod, 0, len(byUID))
	for _, pod := range byUID {
		slices.SortFunc(pod.Spec.Containers, func(a, b v1.Container) int { return strings.Compare(a.Name, b.Name) })
		pods = append(pods, pod)
	}
	slices.SortFunc(pods, func(a, b *v1.Pod) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	})
	answer(w, podList(pods))
}

// watchDelay is how long changes are collected before a watch reports them: a sync changes a status
// more than once.
const watchDelay = 50 * time.Millisecond

// summaries answers with a summary of each pod. With ?watch=true, it continues with changes.
func (s *Server) summaries(w http.ResponseWriter, r *http.Request) {
	if !asked(r, "watch") {
		answer(w, api.PodList{Items: s.summarize()})
		return
	}
	changed, stop := s.backend.WatchPods()
	defer stop()
	stream := newEventStream(w)
	shown := map[types.UID]api.PodSummary{}
	for {
		now := map[types.UID]bool{}
		for _, p := range s.summarize() {
			now[p.UID] = true
			old, known := shown[p.UID]
			if known && reflect.DeepEqual(old, p) {
				continue
			}
			shown[p.UID] = p
			kind := api.Modified
			if !known {
				kind = api.Added
			}
			if stream.send(api.Change{Type: kind, Pod: p}) != nil {
				return
			}
		}
		for uid, p := range shown {
			if !now[uid] {
				delete(shown, uid)
				if stream.send(api.Change{Type: api.Deleted, Pod: p}) != nil {
					return
				}
			}
		}
		if !stream.wait(r.Context(), changed) || !retry.Sleep(r.Context(), watchDelay) {
			return
		}
	}
}

func (s *Server) summarize() []api.PodSummary {
	pods := s.backend.Pods()
	out := make([]api.PodSummary, 0, len(pods))
	for _, pod := range pods {
		out = append(out, api.Summarize(pod))
	}
	return out
}

// asked reports whether a query parameter is given and not false.
func asked(r *http.Request, name string) bool {
	values, ok := r.URL.Query()[name]
	return ok && values[0] != "false" && values[0] != "0"
}

// look is how often a watch of pods looks without a notification: what a worker does next is not a
// change of the pod's status.
const look = time.Second

// heartbeat is how often a watch without changes writes, so that the server notices a reader who
// has left.
const heartbeat = 15 * time.Second

// sendTimeout bounds the sending of one change. A reader that does not read for so long is
// disconnected and may connect again.
const sendTimeout = 30 * time.Second

// eventStream sends JSON values as server-sent events.
type eventStream struct {
	w       http.ResponseWriter
	control *http.ResponseController
	sent    time.Time
}

func newEventStream(w http.ResponseWriter) *eventStream {
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	s := &eventStream{w: w, control: http.NewResponseController(w), sent: time.Now()}
	_ = s.control.Flush()
	return s
}

func (s *eventStream) send(value any) error {
	data, err := json.Marshal(value)
	if err != nil {
		return err
	}
	return s.write("data: " + string(data) + "\n\n")
}

func (s *eventStream) write(text string) error {
	s.sent = time.Now()
	_ = s.control.SetWriteDeadline(s.sent.Add(sendTimeout))
	if _, err := s.w.Write([]byte(text)); err != nil {
		return err
	}
	return s.control.Flush()
}

// wait waits for a notification, or until it is time to look again. It first writes a comment if
// the stream was silent for long. It reports whether the stream lives.
func (s *eventStream) wait(ctx context.Context, changed <-chan struct{}) bool {
	if time.Since(s.sent) > heartbeat && s.write(": alive\n\n") != nil {
		return false
	}
	t := time.NewTimer(look)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-changed:
	case <-t.C:
	}
	return true
}
