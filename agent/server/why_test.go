package server

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berthd/berth/agent/pod/timeline"
	"github.com/berthd/berth/agent/source"
)

func done(step string) timeline.Entry { return timeline.Entry{Step: step, Outcome: timeline.Done} }
func wait(step, message string) timeline.Entry {
	return timeline.Entry{Step: step, Outcome: timeline.Wait, Message: message}
}

func failed(step, message string) timeline.Entry {
	return timeline.Entry{Step: step, Outcome: timeline.Failed, Message: message}
}

func TestExplain(t *testing.T) {
	ready := v1.PodStatus{Phase: v1.PodRunning, ContainerStatuses: []v1.ContainerStatus{
		{Name: "c", Ready: true, State: v1.ContainerState{Running: &v1.ContainerStateRunning{}}},
	}}
	unready := *ready.DeepCopy()
	unready.ContainerStatuses[0].Ready = false
	crashing := v1.PodStatus{Phase: v1.PodRunning, ContainerStatuses: []v1.ContainerStatus{
		{
			Name: "c",
			State: v1.ContainerState{Waiting: &v1.ContainerStateWaiting{
				Reason: "CrashLoopBackOff", Message: "back-off 10s",
			}},
		},
	}}
	deleted := metav1.Now()
	for name, tc := range map[string]struct {
		status            v1.PodStatus
		probe             bool
		gate              v1.PodConditionType
		deleted           *metav1.Time
		line              timeline.Timeline
		want, step, error string
		overcome          bool
	}{
		"all is well": {status: ready, line: lineOf("Running", done("admit"), done("sandbox"), done("images"))},
		"a step waits": {
			status: v1.PodStatus{Phase: v1.PodPending},
			line:   lineOf("Running", done("admit"), done("sandbox"), wait("images", "c: pulling")),
			want:   "c: pulling",
			step:   "images",
		},
		"a step takes long": {
			status: v1.PodStatus{Phase: v1.PodPending},
			line:   hanging(lineOf("Running", failed("sandbox", "gone")), "sandbox", 7*time.Second),
			want:   "step sandbox to end, which has taken 7s",
			step:   "sandbox",
			error:  "gone",
		},
		"a step has just begun": {
			status: v1.PodStatus{Phase: v1.PodPending},
			line:   hanging(lineOf("Running", wait("images", "c: pulling")), "sandbox", 70*time.Millisecond),
			want:   "c: pulling",
			step:   "images",
		},
		"a silent runtime": {
			status: v1.PodStatus{Phase: v1.PodPending},
			line:   hanging(lineOf("Running"), timeline.StepObserve, 12*time.Second),
			want:   "the runtime to answer, which has been silent for 12s",
			step:   timeline.StepObserve,
		},
		"others start first": {
			status: v1.PodStatus{Phase: v1.PodPending},
			line:   hanging(lineOf("Running"), timeline.StepSlot, 2*time.Second),
			want:   "other pods to start first, for 2s",
			step:   timeline.StepSlot,
		},
		"a step fails": {
			status: v1.PodStatus{Phase: v1.PodPending},
			line:   lineOf("Running", done("admit"), failed("sandbox", "no network")),
			want:   "sandbox to succeed: no network",
			step:   "sandbox",
			error:  "no network",
		},
		"an earlier sync came further": {
			status: v1.PodStatus{Phase: v1.PodPending},
			line:   lineOf("Running", wait("images", "c: pulling"), done("admit"), failed("sandbox", "gone")),
			want:   "sandbox to succeed: gone",
			step:   "sandbox",
			error:  "gone",
		},
		"an earlier wait that this sync did not come to": {
			status: ready, line: lineOf("Running", wait("images", "c: pulling"), done("admit"), done("sandbox")),
		},
		"overcome": {
			status: ready,
			line: lineOf("Running", failed("sandbox", "no network"), done("admit"), done("sandbox"),
				done("images")),
			error:    "no network",
			overcome: true,
		},
		"the runtime is away": {
			status: ready,
			line:   lineOf("Running", done("admit"), done("sandbox"), failed("observe", "connection refused")),
			want:   "observe to succeed: connection refused",
			step:   "observe",
			error:  "connection refused",
		},
		"not ready": {
			status: unready,
			probe:  true,
			line:   lineOf("Running", done("admit")),
			want:   "container c to pass its readiness probe",
		},
		"crash loop": {
			status: crashing,
			line:   lineOf("Running", done("admit")),
			want:   "container c: CrashLoopBackOff: back-off 10s",
		},
		"never had a sync": {
			status: v1.PodStatus{Phase: v1.PodPending},
			line:   timeline.Timeline{Phase: "Running"},
			want:   "its first sync",
		},
		"successor": {
			status: v1.PodStatus{Phase: v1.PodPending},
			line:   timeline.Timeline{Phase: "Running", Successor: true},
			want:   "its predecessor of the same name to be gone",
		},
		"stopping": {
			status:  ready,
			deleted: &deleted,
			line: lineOf("Terminating", done("admit"), wait("sandbox", "old"), done("remove images"),
				wait("remove sandbox", "c to end")),
			want: "c to end",
			step: "remove sandbox",
		},
		"several failures of a removal": {
			status:  ready,
			deleted: &deleted,
			line:    lineOf("Terminating", done("admit"), failed("remove sandbox", "a; b")),
			want:    "the removal of its sandbox to succeed: a; b",
			step:    "remove sandbox",
			error:   "a; b",
		},
		"a removal takes long": {
			status:  ready,
			deleted: &deleted,
			line:    hanging(lineOf("Terminating", done("admit")), "remove sandbox", 3*time.Second),
			want:    "the removal of its sandbox to end, which has taken 3s",
			step:    "remove sandbox",
		},
		"a resize without room": {
			status: withCondition(ready, v1.PodResizePending, v1.ConditionTrue, "Deferred",
				"Node didn't have enough resource: cpu"),
			line: lineOf("Running", done("admit")),
			want: "its resize (condition PodResizePending): Deferred: Node didn't have enough resource: cpu; it runs " +
				"on with what it has",
		},
		"a resize beyond the node": {
			status: withCondition(ready, v1.PodResizePending, v1.ConditionTrue, "Infeasible", "too much"),
			line:   lineOf("Running", done("admit")),
			want: "its resize (condition PodResizePending): Infeasible: too much; it runs on with what it has, until " +
				"it asks for less",
		},
		"a readiness gate": {
			status: withCondition(ready, v1.PodReady, v1.ConditionFalse, "ReadinessGatesNotReady",
				`corresponding condition of pod readiness gate "lb" does not exist.`),
			gate: "lb", line: lineOf("Running", done("admit")),
			want: "its readiness gates: lb (there is no such condition); nobody can set a condition of a pod from a " +
				"manifest, which never becomes ready: take readinessGates out of it",
		},
		"ended": {status: v1.PodStatus{Phase: v1.PodSucceeded}, line: lineOf("Terminated", done("remove images"))},
	} {
		pod := &v1.Pod{
			ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: tc.deleted},
			Spec:       v1.PodSpec{Containers: []v1.Container{{Name: "c"}}},
			Status:     tc.status,
		}
		if tc.probe {
			pod.Spec.Containers[0].ReadinessProbe = &v1.Probe{}
		}
		if tc.gate != "" {
			pod.Spec.ReadinessGates = []v1.PodReadinessGate{{ConditionType: tc.gate}}
		}
		got := Explain(pod, tc.line)
		if got.WaitsFor != tc.want || got.Step != tc.step {
			t.Errorf("%s: waits for %q at %q, want %q at %q", name, got.WaitsFor, got.Step, tc.want, tc.step)
		}
		switch {
		case got.LastError == nil && tc.error != "":
			t.Errorf("%s: no last error", name)
		case got.LastError != nil && (got.LastError.Message != tc.error || got.LastError.Overcome != tc.overcome):
			t.Errorf("%s: last error %+v, want %q", name, got.LastError, tc.error)
		}
	}
}

// A pod that has ended says so in the pod's words, whatever its worker does.
func TestPhases(t *testing.T) {
	got := Explain(&v1.Pod{Status: v1.PodStatus{Phase: v1.PodSucceeded}}, timeline.Timeline{Phase: "Terminated"})
	if got.Phase != v1.PodSucceeded || got.WorkerPhase != "Terminated" {
		t.Errorf("phase %s, worker's %s", got.Phase, got.WorkerPhase)
	}
}

func TestNewerVersionRefused(t *testing.T) {
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web-node", UID: "u"},
		Spec:       v1.PodSpec{NodeName: "Node"},
	}
	const file = "/m/web.yaml"
	kept := source.Result{File: file, Kind: "Pod", Namespace: "default", Name: "web-node", UID: "u", Accepted: true}
	current := kept
	current.Document = 1
	bad := func(file, kind, name, message string) source.Result {
		return source.Result{File: file, Document: 1, Kind: kind, Name: name, Message: message}
	}
	for name, tc := range map[string]struct {
		results []source.Result
		want    string
	}{
		"nothing is refused":  {[]source.Result{current}, ""},
		"another document is": {[]source.Result{current, bad(file, "", "", "syntax")}, ""},
		"another file is":     {[]source.Result{kept, bad("/m/b.yaml", "Pod", "web-node", "image")}, ""},
		"validation":          {[]source.Result{bad(file, "Pod", "web-node", "image"), kept}, "image"},
		"a wrong type":        {[]source.Result{bad(file, "Pod", "web", "port"), kept}, "port"},
		"syntax":              {[]source.Result{bad(file, "", "", "syntax"), kept}, "syntax"},
		"the pod's own before others'": {
			[]source.Result{bad(file, "", "", "syntax"), bad(file, "Pod", "web", "port"), kept}, "port",
		},
		"a pod of no manifest, no UID": {
			[]source.Result{{File: file, Accepted: true}, bad(file, "", "", "syntax")}, "",
		},
		"a kept pod whose name changed": {[]source.Result{bad(file, "Pod", "other-node", "image"), kept}, "image"},
	} {
		got := newerRefused(tc.results, pod)
		if got == nil && tc.want != "" || got != nil && got.Message != tc.want {
			t.Errorf("%s: %+v, want %q", name, got, tc.want)
		}
	}
}

// A pod that does not find its ConfigMap is told of the file that would have it, and what is wrong
// there.
func TestRefusedObjects(t *testing.T) {
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web-node"}}
	pod.Spec.Volumes = []v1.Volume{
		{
			Name: "v",
			VolumeSource: v1.VolumeSource{
				ConfigMap: &v1.ConfigMapVolumeSource{LocalObjectReference: v1.LocalObjectReference{Name: "conf"}},
			},
		},
		{
			Name: "again",
			VolumeSource: v1.VolumeSource{
				ConfigMap: &v1.ConfigMapVolumeSource{LocalObjectReference: v1.LocalObjectReference{Name: "conf"}},
			},
		},
		{Name: "s", VolumeSource: v1.VolumeSource{Secret: &v1.SecretVolumeSource{SecretName: "conf"}}},
	}
	refused := func(kind, namespace, name string) source.Result {
		return source.Result{
			File:      "/m/c.yaml",
			Line:      4,
			Kind:      kind,
			Namespace: namespace,
			Name:      name,
			Message:   "data[a]: must be a string",
		}
	}
	good := refused("ConfigMap", "", "conf")
	good.Accepted = true
	const told = "; ConfigMap conf is in /m/c.yaml, which is refused: line 4: data[a]: must be a string"
	for name, tc := range map[string]struct {
		result source.Result
		want   string
	}{
		"its ConfigMap":        {refused("ConfigMap", "", "conf"), told},
		"by its namespace":     {refused("ConfigMap", "default", "conf"), told},
		"of another namespace": {refused("ConfigMap", "other", "conf"), ""},
		"of another name":      {refused("ConfigMap", "", "other"), ""},
		"another kind": {
			refused("Secret", "", "conf"),
			"; Secret conf is in /m/c.yaml, which is refused: line 4: data[a]: must be a string",
		},
		"a kind it has none of": {refused("PersistentVolumeClaim", "", "conf"), ""},
		"a good one":            {good, ""},
		"one that says nothing": {refused("", "", ""), ""},
	} {
		if got := refusedObjects([]source.Result{tc.result}, pod); got != tc.want {
			t.Errorf("%s: %q", name, got)
		}
	}
}

func TestNextRetry(t *testing.T) {
	at := time.Now()
	got := Explain(&v1.Pod{}, timeline.Timeline{Phase: "Running", RetryAt: at})
	if got.NextRetry == nil || !got.NextRetry.Equal(at) {
		t.Errorf("next retry: %v", got.NextRetry)
	}
}

func TestLastWarning(t *testing.T) {
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "u"}}
	about := func(uid, kind, reason string) v1.Event {
		e := v1.Event{Type: kind, Reason: reason}
		e.InvolvedObject.FieldPath = "spec.containers{c}"
		e.InvolvedObject.UID = metav1.ObjectMeta{UID: "u"}.UID
		if uid != "u" {
			e.InvolvedObject.UID = "other"
		}
		return e
	}
	failed, gone := about("u", v1.EventTypeWarning, "Failed"), about("u", v1.EventTypeWarning, "Failed")
	failed.Message, gone.Message = "no such program", "Error: ImagePullBackOff"
	backOff := about("u", v1.EventTypeWarning, "BackOff")
	others := []v1.Event{
		about("u", v1.EventTypeWarning, "MissingClusterDNS"), about("u", v1.EventTypeWarning, "ResizeDeferred"),
		about("u", v1.EventTypeNormal, "Pulled"), about("other", v1.EventTypeWarning, "Failed"),
	}
	for want, events := range map[string][]v1.Event{
		"Failed: no such program": append([]v1.Event{failed, backOff, gone}, others...),
		"BackOff: ":               append([]v1.Event{backOff}, others...),
		"none":                    others,
	} {
		got := "none"
		if f := lastWarning(events, pod); f != nil {
			if got = f.Step + ": " + f.Message; f.Container != "c" {
				t.Errorf("container %q", f.Container)
			}
		}
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// withCondition returns a status with a condition.
func withCondition(
	s v1.PodStatus, kind v1.PodConditionType, status v1.ConditionStatus, reason, message string,
) v1.PodStatus {
	s.Conditions = append(s.Conditions, v1.PodCondition{Type: kind, Status: status, Reason: reason, Message: message})
	return s
}

// hanging puts a step into the line that is under way for so long.
func hanging(s timeline.Timeline, step string, since time.Duration) timeline.Timeline {
	s.UnderWay, s.UnderWayFor = step, since
	return s
}
