package images

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berthd/berth/cri"
	"github.com/berthd/berth/internal/retry"
)

const (
	// operatorUID begins the UID of what stands for a pod while an operator pulls an image. No
	// pod's UID begins so, because its events are dropped.
	operatorUID = "berth-pull/"
	// operatorLook is the time between two looks at a pull that an operator waits for.
	operatorLook = 100 * time.Millisecond
)

// Pull pulls an image for an operator, in its turn among the pods' pulls, and waits for the end. It
// always asks the registry, with the node's credentials. It fails at the first failure, and does
// not try again. If ctx ends, the pull is given up, unless a pod waits for it, too.
func (m *Manager) Pull(ctx context.Context, image string) (cri.Image, error) {
	uid := types.UID(operatorUID + strconv.FormatUint(m.operators.Add(1), 10))
	defer m.Forget(uid)
	req := Request{
		Pod: &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: uid}}, Container: "image", Image: image, Policy: v1.PullAlways,
	}
	for {
		switch res := m.Ensure(ctx, req); {
		case res.Ready:
			return res.Image, nil
		case res.Reason != ReasonCreating:
			return cri.Image{}, fmt.Errorf("pulling image %s: %s: %s", image, res.Reason, res.Message)
		case !retry.Sleep(ctx, operatorLook):
			return cri.Image{}, fmt.Errorf("pulling image %s: %w", image, context.Cause(ctx))
		}
	}
}

// eventsOfPods returns the sink without the events about what stands for no pod.
func eventsOfPods(sink func(*v1.Pod, string, string, string, string)) func(*v1.Pod, string, string, string, string) {
	return func(pod *v1.Pod, container, kind, reason, message string) {
		if !strings.HasPrefix(string(pod.UID), operatorUID) {
			sink(pod, container, kind, reason, message)
		}
	}
}
