package images

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const busybox = "docker.io/library/busybox:1"

// listed returns the image of that name as the runtime lists it.
func (b *bench) listed(name string) *runtimeapi.Image {
	b.Helper()
	list, err := b.runtime.ListImages(context.Background())
	if err != nil {
		b.Fatal(err)
	}
	for _, image := range list {
		if image.Id == "id-of-"+name {
			return image
		}
	}
	b.Fatalf("there is no image %s", name)
	return nil
}

func (b *bench) wantRemoved(want bool, name string) {
	b.Helper()
	removed, err := b.Remove(context.Background(), b.listed(name))
	if err != nil || removed != want {
		b.Errorf("removed %s: %t, %v; want %t", name, removed, err, want)
	}
}

func TestRemoveLeavesTheImagesThatPodsAskedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, Config{}, Deps{})
		b.runtime.put(busybox)
		wantReady(t, b.want("a", "busybox:1"))
		b.wantRemoved(false, busybox)
		b.forget("a")
		b.wantRemoved(true, busybox)
		if res := b.want("b", "busybox:1", policy("Never")); res.Reason != ReasonNeverPull {
			t.Errorf("the image is still there: %+v", res)
		}
	})
}

// An image that was pulled under a tag is the pod's also if the tag names another image by now.
func TestRemoveLeavesThePulledImageWhoseTagMoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, Config{}, Deps{})
		b.want("a", "busybox:1")
		wantReady(t, b.want("a", "busybox:1"))
		image := b.listed(busybox)
		image.RepoTags = nil
		if removed, err := b.Remove(t.Context(), image); err != nil || removed {
			t.Errorf("removed %t, %v", removed, err)
		}
	})
}

// A pod that asks for an image during the image's removal must not be told that it is there.
func TestEnsureWaitsForTheEndOfARemoval(t *testing.T) {
	for _, fails := range []error{nil, errors.New("read-only")} {
		synctest.Test(t, func(t *testing.T) {
			b := start(t, Config{}, Deps{})
			b.runtime.put(busybox)
			gate, result := make(chan error), make(chan error, 1)
			b.runtime.removing = func(string) error { return <-gate }
			image := b.listed(busybox)
			go func() {
				removed, err := b.Remove(context.Background(), image)
				if removed != (fails == nil) {
					t.Errorf("removed: %t", removed)
				}
				result <- err
			}()
			synctest.Wait()
			wantWait(t, b.want("a", "busybox:1"), ReasonCreating, `Image "busybox:1" is being removed`, 0)
			wantWait(t, b.want("b", "other:1"), ReasonCreating, `Pulling image "other:1"`, 0)
			b.takeWoken()
			gate <- fails
			if err := <-result; !errors.Is(err, fails) {
				t.Errorf("the removal returned %v, want %v", err, fails)
			}
			synctest.Wait()
			b.wantWoken("a")
			if fails != nil {
				wantReady(t, b.want("a", "busybox:1"))
				return
			}
			wantWait(t, b.want("a", "busybox:1"), ReasonCreating, `Pulling image "busybox:1"`, 0)
			wantReady(t, b.want("a", "busybox:1"))
		})
	}
}

func TestKeptBy(t *testing.T) {
	pins, err := NewPins([]string{"busybox:1"})
	if err != nil {
		t.Fatal(err)
	}
	m := New(Config{Pins: pins}, Deps{})
	for _, c := range []struct {
		image *runtimeapi.Image
		want  string
	}{
		{&runtimeapi.Image{Id: "x"}, ""},
		{&runtimeapi.Image{Id: "x", Pinned: true}, "the runtime has it pinned"},
		{
			&runtimeapi.Image{Id: "x", RepoTags: []string{"docker.io/library/other:1", busybox}},
			"pinnedImages in the config names " + busybox,
		},
	} {
		if got := m.KeptBy(c.image); !strings.HasPrefix(got, c.want) || c.want == "" && got != "" {
			t.Errorf("%v is kept because %q, want %q", c.image, got, c.want)
		}
	}
}
