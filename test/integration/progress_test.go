//go:build integration

package integration

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berthd/berth/cri"
	"github.com/berthd/berth/test/env"
	"github.com/berthd/berth/test/images"
)

// TestPullProgress pulls an image that stops coming in its second layer, and is then cancelled and pulled again.
func TestPullProgress(t *testing.T) {
	for _, version := range versions {
		t.Run(version, func(t *testing.T) {
			e := env.Containerd(t, env.Options{Version: version})
			runtime := dial(t, e)
			registry := env.StartRegistry(t, env.RegistryOptions{})
			front := newProxy(t, registry)
			img := readImage(t, archiveOf(t, e, images.Pause)).with(t, 1<<20, 4<<20)
			img.push(t, registry, "team/app", "v1")
			stalled := img.layers(t)[2]
			front.set(func(p *proxy) { p.stall[stalled] = 3 << 20 })
			name := front.Host + "/team/app:v1"
			spec := &runtimeapi.ImageSpec{Image: name}
			since := time.Now()
			progress := func() cri.PullProgress {
				t.Helper()
				p, err := runtime.PullProgress(t.Context(), name, since)
				if err != nil {
					t.Fatal(err)
				}
				return p
			}
			if p := progress(); p.Total != 0 || p.Done != 0 {
				t.Errorf("progress before the pull is %+v", p)
			}
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() {
				_, err := runtime.PullImage(ctx, spec, nil, nil)
				ended <- err
			}()
			// Everything but the rest of one layer.
			want := img.size() - int64(len(img.blobs[stalled])) + 3<<20
			env.Eventually(t, "the image to come as far as it does", func() error {
				if p := progress(); p.Total != img.size() || p.Done != want || p.Unpacking {
					return fmt.Errorf("progress is %+v, want %d of %d", p, want, img.size())
				}
				return nil
			})
			env.Eventually(t, "no activity while nothing comes", func() error {
				if a, b := progress(), progress(); a.Activity != b.Activity {
					return fmt.Errorf("it is %d, then %d", a.Activity, b.Activity)
				}
				return nil
			})
			cancel()
			if err := <-ended; err == nil {
				t.Error("the cancelled pull succeeded")
			}
			// Debian's containerd may be collecting what the cancelled pull left, under the feet of the next one.
			env.Eventually(t, "the image to be pulled after all", func() error {
				_, err := runtime.PullImage(t.Context(), spec, nil, nil)
				return err
			})
			if p := progress(); p.Total != img.size() || p.Done != p.Total {
				t.Errorf("progress at the end is %+v", p)
			}
			if n := front.count(img.layers(t)[1]); n != 1 && version == env.Containerd24 {
				t.Errorf("a layer that had come was fetched %d times", n)
			}
		})
	}
}

// TestPin pins an image that was pulled, twice, and one that is not there.
func TestPin(t *testing.T) {
	for _, version := range versions {
		t.Run(version, func(t *testing.T) {
			e := env.Containerd(t, env.Options{Version: version})
			runtime := dial(t, e)
			spec := &runtimeapi.ImageSpec{Image: images.Web}
			if image, err := runtime.ImageStatus(t.Context(), spec); err != nil || image.GetPinned() {
				t.Fatalf("before, the image is %v, %v", image, err)
			}
			for range 2 {
				if err := runtime.Pin(t.Context(), images.Web); err != nil {
					t.Fatal(err)
				}
			}
			if version == env.Containerd24 { // Debian's does not know pins
				env.Eventually(t, "the CRI to say so", func() error {
					if image, err := runtime.ImageStatus(t.Context(), spec); err != nil || !image.GetPinned() {
						return fmt.Errorf("the image is %v, %w", image, err)
					}
					return nil
				})
			}
			if err := runtime.Pin(t.Context(), "berth.local/none:v1"); !errdefs.IsNotFound(err) {
				t.Errorf("pinning what is not there: %v", err)
			}
		})
	}
}
