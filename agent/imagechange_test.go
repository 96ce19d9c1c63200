package agent

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/berthd/berth/cri/fake"
)

// A container that waits to be started again, because it crashes, starts at once when its image
// changes. If the new image crashes, too, its back-off begins with the first delay.
func TestAnotherImageStartsWithoutTheBackoff(t *testing.T) {
	join(t, "", func(t *testing.T, j *joined) {
		crashes := fake.Behavior{Exit: &fake.Exit{Code: 1}}
		j.rt.Script("app", crashes)
		j.bind("a")
		time.Sleep(8 * time.Minute)
		starts := j.calls("StartContainer")
		waiting := j.Pods()[0].Status.ContainerStatuses[0].State.Waiting
		if waiting == nil || waiting.Reason != "CrashLoopBackOff" || starts < 5 {
			t.Fatalf("after %d starts it is %+v", starts, waiting)
		}
		time.Sleep(10 * time.Second)
		if n := j.calls("StartContainer"); n != starts {
			t.Fatalf("it is about to start: %d and %d starts", starts, n)
		}
		j.change("a", func(p *v1.Pod) { p.Spec.Containers[0].Image = "app2" })
		time.Sleep(3 * time.Second)
		if n := j.calls("StartContainer") - starts; n != 1 {
			t.Errorf("with another image it was started %d times at once", n)
		}
		time.Sleep(20 * time.Second) // the second start is after 10 s, and the third 20 s after that
		if n := j.calls("StartContainer") - starts; n != 2 {
			t.Errorf("with another image it was started %d times in 23 s", n)
		}
	})
}
