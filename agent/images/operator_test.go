package images

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/berthd/berth/cri/fake"
)

// An operator's pull waits for its turn, tells a failure at once, leaves nothing behind, and is no
// pod's event.
func TestPullForAnOperator(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := fake.New(fake.Config{Images: []fake.Image{
			{Name: "good", PullTime: time.Minute},
			{Name: "bad", PullErr: errors.New("no such image")},
			{Name: "endless", PullTime: time.Hour},
		}})
		events := 0
		m := New(Config{}, Deps{Runtime: rt, Events: func(*v1.Pod, string, string, string, string) { events++ }})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- m.Run(ctx) }()
		began := time.Now()
		image, err := m.Pull(t.Context(), "good")
		if took := time.Since(began); err != nil || image.Ref == "" || took < time.Minute || took > 61*time.Second {
			t.Errorf("good: %+v after %s, %v", image, took, err)
		}
		const refused = "pulling image bad: ErrImagePull: "
		if _, err := m.Pull(t.Context(), "bad"); err == nil || !strings.Contains(err.Error(), refused) {
			t.Errorf("bad: %v", err)
		}
		if _, err := m.Pull(t.Context(), "NO NAME"); err == nil || !strings.Contains(err.Error(), "InvalidImageName") {
			t.Errorf("no name: %v", err)
		}
		short, over := context.WithTimeout(t.Context(), time.Second)
		if _, err := m.Pull(short, "endless"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("endless: %v", err)
		}
		over()
		synctest.Wait()
		if left := m.Progress(t.Context()); len(left) > 0 || len(m.wants) > 0 || len(m.backoffs) > 0 || events > 0 {
			t.Errorf("left: %+v, %d wants, %d back-offs; %d events", left, len(m.wants), len(m.backoffs), events)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
