package volumes

import (
	"context"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
)

// lasting is a context that takes three minutes to say that it goes on: who looks at it between two
// files works for as long as if the files were many.
type lasting struct{ context.Context }

func (lasting) Err() error {
	time.Sleep(3 * time.Minute)
	return nil
}

// A change of a volume's group that lasts is reported with events about the pod, and one that does
// not last is not.
func TestChangeOfOwnersThatLastsIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var events []string
		m := New(Config{RootDir: t.TempDir()}, Deps{Events: func(pod *v1.Pod, _, kind, reason, message string) {
			events = append(events, pod.Name+" "+kind+" "+reason+" "+message)
		}})
		change := func(ctx context.Context) {
			must(t, m.changeOwner(ctx, podNamed("pod"), ownership{dir: t.TempDir(), group: int64(os.Getgid())}))
		}
		change(t.Context())
		if len(events) > 0 {
			t.Errorf("a change that is over at once: %q", events)
		}
		change(lasting{t.Context()})
		const begins = "pod Warning VolumePermissionChangeInProgress Setting volume ownership for "
		if len(events) < 3 || slices.ContainsFunc(events, func(e string) bool { return !strings.HasPrefix(e, begins) }) ||
			!strings.Contains(events[0], "is taking longer than expected") || !strings.Contains(events[1], "processed") {
			t.Errorf("a change of three minutes or more: %q", events)
		}
	})
}
