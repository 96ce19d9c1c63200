//go:build integration

package integration

import (
	"context"
	"fmt"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berthd/berth/cri"
	"github.com/berthd/berth/test/env"
	"github.com/berthd/berth/test/images"
)

// TestPullProgress pulls an image whose second layer stops in the middle. The pull is then
// cancelled and repeated.
func TestPullProgress(t *testing.T) {
	t.Parallel()
	for _, version := range versions {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
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
			// containerd may collect the remains of the cancelled pull when it likes: the layers
			// that had come may come again, and Debian's may disturb the next pull.
			env.Eventually(t, "the image to be pulled after all", func() error {
				_, err := runtime.PullImage(t.Context(), spec, nil, nil)
				return err
			})
			if p := progress(); p.Total != img.size() || p.Done != p.Total {
				t.Errorf("progress at the end is %+v", p)
			}
		})
	}
}
