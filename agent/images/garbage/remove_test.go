package garbage

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berthd/berth/agent/images"
	"github.com/berthd/berth/cri/fake"
)

func TestRemoveOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t,
			fake.Image{Name: "young", Present: true, Size: 10}, fake.Image{Name: "needed", Present: true, Size: 10},
			fake.Image{Name: "kept", Present: true, Size: 10}, fake.Image{Name: "asked", Present: true, Size: 10},
			fake.Image{Name: "byid", Present: true, Size: 10})
		var err error
		if n.pins, err = images.NewPins([]string{"kept"}); err != nil {
			t.Fatal(err)
		}
		defer n.start(usual)()
		n.setPods(podOf("needed"))
		for name, want := range map[string]struct {
			err  error
			text string
		}{
			"needed": {ErrNeeded, "needed:latest: pod ns/needed names it"},
			"kept":   {ErrNeeded, "is pinned: pinnedImages in the config names docker.io/library/kept:latest"},
			"nobody": {ErrNoImage, ""},
			"":       {ErrNoImage, ""},
		} {
			if _, err := n.Remove(t.Context(), name); !errors.Is(err, want.err) || !strings.Contains(err.Error(), want.text) {
				t.Errorf("%q: %v, want %v", name, err, want)
			}
		}
		// a pod has asked for it since the list was made
		n.manager.Ensure(t.Context(), images.Request{
			Pod: podOf("asked"), Container: "c", Image: "asked", Policy: v1.PullIfNotPresent,
		})
		if _, err := n.Remove(t.Context(), "asked"); !errors.Is(err, ErrNeeded) {
			t.Errorf("asked for: %v", err)
		}
		status, err := n.fake.ImageStatus(t.Context(), &runtimeapi.ImageSpec{Image: "byid"})
		if err != nil || status == nil {
			t.Fatalf("%v, %v", status, err)
		}
		id := status.GetId()
		if image, err := n.Remove(t.Context(), id[:len(id)-2]); err != nil || image.GetId() != id {
			t.Errorf("by the beginning of its ID %s: %v, %v", id, image, err)
		}
		const young = "docker.io/library/young:latest"
		if image, err := n.Remove(t.Context(), "young"); err != nil || image.GetRepoTags()[0] != young {
			t.Errorf("young: %v, %v", image, err)
		}
		n.want("asked", "kept", "needed")
	})
}
