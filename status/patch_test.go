package status

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
)

// apply applies a patch as the API server does.
func apply(t *testing.T, pod *v1.Pod, patch []byte) *v1.Pod {
	t.Helper()
	text, err := json.Marshal(pod)
	if err != nil {
		t.Fatal(err)
	}
	out, err := strategicpatch.StrategicMergePatch(text, patch, pod)
	if err != nil {
		t.Fatalf("%s: %v", patch, err)
	}
	var after v1.Pod
	if err := json.Unmarshal(out, &after); err != nil {
		t.Fatal(err)
	}
	return &after
}

func second(n int) metav1.Time { return metav1.NewTime(time.Unix(int64(1700000000+n), 0)) }

func conditionOf(t v1.PodConditionType, s v1.ConditionStatus, reason string) v1.PodCondition {
	return v1.PodCondition{Type: t, Status: s, Reason: reason, LastTransitionTime: second(1)}
}

// full is a status with a value in every field that the node owns.
func full(n int) v1.PodStatus {
	start := second(0)
	text := strings.Repeat("x", n)
	return v1.PodStatus{
		Phase:              v1.PodRunning,
		Reason:             text,
		Message:            text,
		HostIP:             "10.0.0." + string(rune('0'+n)),
		PodIP:              "10.1.0." + string(rune('0'+n)),
		StartTime:          &start,
		HostIPs:            []v1.HostIP{{IP: "10.0.0." + string(rune('0'+n))}},
		PodIPs:             []v1.PodIP{{IP: "10.1.0." + string(rune('0'+n))}},
		ObservedGeneration: int64(n),
		AllocatedResources: v1.ResourceList{v1.ResourceCPU: resource.MustParse(string(rune('0'+n)) + "00m")},
		Resources: &v1.ResourceRequirements{Limits: v1.ResourceList{v1.ResourceName("r" +
			text): resource.MustParse("1")}},
		InitContainerStatuses: []v1.ContainerStatus{{Name: "i", RestartCount: int32(n)}},
		ContainerStatuses: []v1.ContainerStatus{{
			Name:         "c",
			RestartCount: int32(n),
			State:        v1.ContainerState{Running: &v1.ContainerStateRunning{StartedAt: second(n)}},
		}},
		EphemeralContainerStatuses: []v1.ContainerStatus{{Name: "e", RestartCount: int32(n)}},
		Conditions: []v1.PodCondition{
			conditionOf(v1.PodReady, v1.ConditionTrue, ""), conditionOf(v1.PodInitialized, v1.ConditionTrue, text),
		},
	}
}

// Whatever the API server has, a patch gives it the wanted status. Then there is nothing more to
// write.
func TestDiffConverges(t *testing.T) {
	empty := v1.PodStatus{Phase: v1.PodPending}
	ended := full(3)
	ended.ContainerStatuses[0].State = v1.ContainerState{Terminated: &v1.ContainerStateTerminated{
		ExitCode: 1, FinishedAt: second(9),
	}}
	ended.Conditions[0].Status, ended.Conditions[0].Reason, ended.Conditions[0].Message = v1.ConditionFalse,
		"PodFailed", "why"
	fewer := full(1)
	fewer.Conditions = fewer.Conditions[:1]
	for name, tc := range map[string]struct{ have, want v1.PodStatus }{
		"from nothing":         {empty, full(1)},
		"to nothing":           {full(1), empty},
		"all others":           {full(1), full(2)},
		"ended":                {full(2), ended},
		"a reason taken back":  {ended, full(3)},
		"a condition is gone":  {full(1), fewer},
		"nothing is different": {full(2), full(2)},
	} {
		t.Run(name, func(t *testing.T) {
			pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "u"}, Status: tc.have}
			pod.Status.Conditions = append([]v1.PodCondition{conditionOf("example.com/gate", v1.ConditionTrue,
				"theirs")}, pod.Status.Conditions...)
			pod.Status.NominatedNodeName, pod.Status.QOSClass = "theirs", v1.PodQOSBurstable
			pod.Status.ResourceClaimStatuses = []v1.PodResourceClaimStatus{{Name: "theirs"}}
			change, err := Diff("u", &pod.Status, &tc.want)
			if err != nil {
				t.Fatal(err)
			}
			after := pod
			if change.Patch != nil {
				after = apply(t, pod, change.Patch)
			}
			if again, err := Diff("u", &after.Status, &tc.want); err != nil || again.Patch != nil {
				t.Errorf("after %s still %s, %v", change.Patch, again.Patch, err)
			}
			if after.UID != "u" || after.Status.NominatedNodeName != "theirs" ||
				len(after.Status.ResourceClaimStatuses) != 1 || after.Status.QOSClass != v1.PodQOSBurstable {
				t.Errorf("%s changed what is somebody else's", change.Patch)
			}
			if c := condition(after.Status.Conditions, "example.com/gate"); c == nil || c.Reason != "theirs" ||
				strings.Contains(string(change.Patch), "theirs") {
				t.Errorf("an unmanaged condition is %v after %s", c, change.Patch)
			}
			if !equality.Semantic.DeepEqual(after.Status.ContainerStatuses, tc.want.ContainerStatuses) ||
				!equality.Semantic.DeepEqual(after.Status.PodIPs, tc.want.PodIPs) {
				t.Errorf("after %s: %+v", change.Patch, after.Status)
			}
		})
	}
}

func TestDiffNeverTakesBackAFinalPhase(t *testing.T) {
	have := v1.PodStatus{Phase: v1.PodFailed, Reason: "Evicted", Message: "m"}
	want := v1.PodStatus{Phase: v1.PodRunning, PodIP: "10.0.0.1"}
	change, err := Diff("u", &have, &want)
	if err != nil || strings.Contains(string(change.Patch), "phase") ||
		strings.Contains(string(change.Patch), "reason") || !strings.Contains(string(change.Patch), "podIP") {
		t.Errorf("%s, %v", change.Patch, err)
	}
}

func TestDiffIsUrgentWhereSomebodyWaits(t *testing.T) {
	pending := v1.PodStatus{Phase: v1.PodPending}
	running, ready := v1.PodStatus{Phase: v1.PodRunning}, full(1)
	creating := v1.PodStatus{Phase: v1.PodPending, ContainerStatuses: []v1.ContainerStatus{{Name: "c"}}}
	for name, tc := range map[string]struct {
		have, want v1.PodStatus
		urgent     bool
	}{
		"runs":          {pending, running, true},
		"is ready":      {running, ready, true},
		"is not ready":  {ready, running, true},
		"is being made": {pending, creating, false},
	} {
		if c, err := Diff("u", &tc.have, &tc.want); err != nil || c.Urgent != tc.urgent || c.Patch == nil {
			t.Errorf("%s: %+v, %v", name, c, err)
		}
	}
}
