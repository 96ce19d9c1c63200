package pods

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestChanges compares values of every form.
func TestChanges(t *testing.T) {
	long := strings.Repeat("x", 500)
	x := map[string]any{
		"a": 1.0, "gone": true, "list": []any{1.0, 2.0}, "long": long + "a", "same": "s", "map": map[string]any{"k": "v"},
	}
	y := map[string]any{
		"a":    2.0,
		"list": []any{1.0, 3.0, 4.0},
		"long": long + "b",
		"same": "s",
		"map":  nil,
		"new":  long,
	}
	var changes []Change
	compare("", x, y, &changes)
	var got []string
	for _, c := range changes {
		got = append(got, fmt.Sprint(c))
	}
	want := []string{"a: 1 -> 2", "gone: true -> (none)", "list[1]: 2 -> 3", "list[2]: (none) -> 4"}
	if len(got) != 7 || !slices.Equal(got[:4], want) || !strings.HasPrefix(got[4], "long: ") ||
		got[5] != `map.k: "v" -> (none)` || len(got[6]) > 200 {
		t.Errorf("got %q", got)
	}
	changes = nil
	if compare("", x, x, &changes); len(changes) != 0 {
		t.Errorf("the same differs: %q", changes)
	}
}

// TestChangesOfPods ignores what no manifest has.
func TestChangesOfPods(t *testing.T) {
	from := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{UID: "1", Annotations: map[string]string{AnnotationHash: "1", "own": "a"}},
		Spec:       v1.PodSpec{Containers: []v1.Container{{Name: "c", Image: "a"}}},
		Status:     v1.PodStatus{Phase: v1.PodRunning},
	}
	to := from.DeepCopy()
	to.UID, to.Annotations[AnnotationHash], to.Status = "2", "2", v1.PodStatus{}
	to.Spec.EphemeralContainers = []v1.EphemeralContainer{{}}
	if got := Changes(from, to); len(got) != 0 {
		t.Errorf("%v", got)
	}
	to.Spec.Containers[0].Image, to.Annotations["own"] = "b", "b"
	got := Changes(from, to)
	if len(got) != 2 || got[0].Path != "metadata.annotations.own" || got[1].String() != `spec.containers[0].image: "a" -> "b"` {
		t.Errorf("%v", got)
	}
}
