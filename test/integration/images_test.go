//go:build integration

package integration

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	agentimages "github.com/berthd/berth/agent/images"
	"github.com/berthd/berth/test/env"
	"github.com/berthd/berth/test/images"
)

// TestImageManager pulls from a registry on loopback, fails to pull from a registry that does not
// exist, and imports an archive, on real containerd.
func TestImageManager(t *testing.T) {
	t.Parallel()
	for _, version := range versions {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			e := env.Containerd(t, env.Options{Version: version})
			runtime := dial(t, e)
			registry := newRegistry(t, archiveOf(t, e, images.Pause))
			if err := runtime.RemoveImage(t.Context(), &runtimeapi.ImageSpec{Image: images.Web}); err != nil {
				t.Fatal(err)
			}
			dir := t.TempDir()
			data, err := os.ReadFile(archiveOf(t, e, images.Web))
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, "web.tar"), data, 0o600); err != nil {
				t.Fatal(err)
			}
			manager := agentimages.New(agentimages.Config{ImagesDir: dir}, agentimages.Deps{
				Runtime: runtime, Importer: runtime, Wake: func(types.UID) {},
				Events: func(_ *v1.Pod, _, kind, reason, message string) { t.Logf("%s %s: %s", kind, reason, message) },
			})
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- manager.Run(ctx) }()
			defer func() {
				cancel()
				if err := <-done; err != nil {
					t.Errorf("run: %v", err)
				}
			}()
			until := func(image string, policy v1.PullPolicy, enough func(agentimages.Result) bool) {
				t.Helper()
				env.Eventually(t, image, func() error {
					res := manager.Ensure(ctx, agentimages.Request{
						Pod: &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "p"}}, Container: image, Image: image,
						Policy: policy,
					})
					if !enough(res) {
						return fmt.Errorf("result is %+v", res)
					}
					return nil
				})
			}
			ready := func(res agentimages.Result) bool { return res.Ready && res.Image.Ref != "" }
			until(images.Web, v1.PullNever, ready)
			until(registry.Host+"/pod/pause:v1", v1.PullIfNotPresent, ready)
			until(registry.Host+"/pod/pause", v1.PullAlways, ready)
			until("127.0.0.1:1/missing:v1", "", func(res agentimages.Result) bool {
				return res.Reason == agentimages.ReasonBackOff && !res.RetryAt.IsZero() &&
					strings.Contains(res.Message, "connection refused")
			})
		})
	}
}
