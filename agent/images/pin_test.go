package images

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/containerd/errdefs"
)

func TestPins(t *testing.T) {
	digest := "@sha256:" + strings.Repeat("0", 64)
	p, err := NewPins([]string{"busybox", "r.io/a:1", "r.io/d" + digest, "r.io/team/*:v?", "*.example/[ab]/x:1"})
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{
		"docker.io/library/busybox:latest": true,
		"docker.io/library/busybox:1":      false,
		"r.io/a:1":                         true,
		"r.io/a:2":                         false,
		"r.io/d" + digest:                  true,
		"r.io/team/app:v1":                 true,
		"r.io/team/app:v12":                false,
		"r.io/team/deep/app:v1":            false,
		"one.example/b/x:1":                true,
		"one.two.example/a/x:1":            true,
		"one.example/c/x:1":                false,
	} {
		if got := p.has(name); got != want {
			t.Errorf("%s is pinned: %t, want %t", name, got, want)
		}
	}
	for _, bad := range []string{"", "Upper", "a b", "r.io/[a:1"} {
		if _, err := NewPins([]string{"busybox", bad}); err == nil ||
			!strings.Contains(err.Error(), "pinnedImages[1]") {
			t.Errorf("%q: error is %v", bad, err)
		}
	}
	if (Pins{}).has("busybox") {
		t.Error("no pins pin something")
	}
}

// pinFunc pins by a function.
type pinFunc func(ctx context.Context, name string) error

func (f pinFunc) Pin(ctx context.Context, name string) error { return f(ctx, name) }

func (pinFunc) Unpin(context.Context, string) error { return errdefs.ErrNotImplemented }

func TestPinnedImages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pins, err := NewPins([]string{"r.io/kept/*:1", "r.io/odd:1"})
		if err != nil {
			t.Fatal(err)
		}
		var mu sync.Mutex
		var pinned []string
		b := start(t, Config{Pins: pins}, Deps{Pinner: pinFunc(func(_ context.Context, name string) error {
			mu.Lock()
			defer mu.Unlock()
			pinned = append(pinned, name)
			if name == "r.io/odd:1" {
				return errors.New("no") // a pin that fails does not make the image unusable
			}
			return errdefs.ErrNotImplemented
		})})
		for _, image := range []string{"r.io/kept/a:1", "r.io/other:1", "r.io/odd:1"} {
			b.want("p", image)
			wantReady(t, b.want("p", image))
		}
		b.end()
		b.runtime.put("r.io/kept/b:1").Pinned = true
		b.run() // images that are there already and not pinned
		slices.Sort(pinned)
		if want := []string{"r.io/kept/a:1", "r.io/kept/a:1", "r.io/odd:1", "r.io/odd:1"}; !slices.Equal(pinned, want) {
			t.Errorf("pinned %q, want %q", pinned, want)
		}
	})
}
