package desired

import (
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berthd/berth/agent/pod/runtimeclass"
	"github.com/berthd/berth/agent/pod/worker"
	"github.com/berthd/berth/internal/pods"
)

// The reasons of the events that say what somebody changed about a pod.
const (
	ManifestChanged = "ManifestChanged"
	ObjectChanged   = "ObjectChanged"
)

// maxFields is how many changed fields an event names.
const maxFields = 8

// predecessor returns the pod whose place a new static pod takes: the static pod of the same name
// that runs. It returns nil if there is none, or if nothing is known of it but what the runtime
// has.
func predecessor(pod *v1.Pod, known map[types.UID]worker.Entry) *v1.Pod {
	name := pods.FullName(pod)
	for uid, e := range known {
		if uid != pod.UID && !e.Waiting && !pods.RuntimeOnly(e.Pod) && !pods.FromAPI(e.Pod) &&
			pods.FullName(e.Pod) == name {
			return e.Pod
		}
	}
	return nil
}

// reportChange records which fields differ between a static pod and the pod whose place it takes.
// The values stay out of the event: they may be secret.
func (r *Reconciler) reportChange(before, pod *v1.Pod) {
	var fields []string
	for _, c := range pods.Changes(before, runtimeclass.Keep(pod, before)) {
		fields = append(fields, c.Path)
	}
	text := "nothing but its UID, which is a hash over the manifest and the path of its file"
	if n := len(fields) - maxFields; n > 0 {
		fields = append(fields[:maxFields], fmt.Sprintf("and %d more", n))
	}
	if len(fields) > 0 {
		text = strings.Join(fields, ", ")
	}
	r.deps.PodEvent(pod, "", v1.EventTypeNormal, ManifestChanged, "Its manifest changed: "+text)
}
