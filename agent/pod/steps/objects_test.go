package steps

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berthd/berth/agent/pod/plan"
)

func TestObjectsHoldBackOnlyWhatIsToStart(t *testing.T) {
	soon := time.Unix(7, 0)
	for _, c := range []struct {
		name    string
		object  string
		actions plan.Actions
		halt    bool
	}{
		{"all known", "", plan.Actions{CreateSandbox: true}, false},
		{"new pod", "secret ns/s", plan.Actions{CreateSandbox: true}, true},
		{"a container to start", "secret ns/s", plan.Actions{Start: []plan.Start{{}}}, true},
		{"all runs already", "secret ns/s", plan.Actions{}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			var used, dropped types.UID
			step := Objects{
				Use:  func(pod *v1.Pod) (string, time.Time) { used = pod.UID; return c.object, soon },
				Drop: func(uid types.UID) { dropped = uid },
			}
			p := &Sync{Given: Given{Pod: &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "u"}}}, Actions: c.actions}
			out, err := step.Ensure(t.Context(), p)
			if err != nil || used != "u" || out.Halt != c.halt {
				t.Errorf("%+v, %v, used %q", out, err, used)
			}
			if c.halt && (out.Waiting != c.object || out.RetryAt != soon) {
				t.Errorf("%+v", out)
			}
			if _, err := step.Remove(t.Context(), p); err != nil || dropped != "u" {
				t.Errorf("dropped %q, %v", dropped, err)
			}
		})
	}
}
