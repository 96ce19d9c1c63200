//go:build integration

package integration

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berthd/berth/cri"
	"github.com/berthd/berth/test/env"
)

// A caller that goes away at any moment of RunPodSandbox leaves nothing that removing the sandbox does not take along: containerd forgets
// some of these sandboxes and keeps their shims.
func TestInterruptedSandboxesLeaveNothing(t *testing.T) {
	e := env.Containerd(t, env.Options{})
	rt := dial(t, e)
	for i := range 60 {
		uid := fmt.Sprintf("interrupted-%d", i)
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(40+i)*time.Millisecond)
		_, err := rt.RunPodSandbox(ctx, &runtimeapi.PodSandboxConfig{
			Metadata:     &runtimeapi.PodSandboxMetadata{Name: uid, Uid: uid, Namespace: "default"},
			Hostname:     "interrupted",
			LogDirectory: t.TempDir(),
			Labels:       map[string]string{cri.LabelPodUID: uid},
			Linux:        &runtimeapi.LinuxPodSandboxConfig{CgroupParent: e.CgroupRoot},
		}, "")
		cancel()
		if err != nil && !errors.Is(err, context.DeadlineExceeded) {
			t.Logf("interrupted after %d ms: %v", 40+i, err)
		}
	}
	env.Eventually(t, "nothing is left", func() error {
		left, err := rt.ListPodSandbox(t.Context(), nil)
		if err != nil {
			return fmt.Errorf("listing sandboxes: %w", err)
		}
		for _, sb := range left {
			if err := errors.Join(rt.StopPodSandbox(t.Context(), sb.Id), rt.RemovePodSandbox(t.Context(), sb.Id)); err != nil {
				return fmt.Errorf("removing sandbox %s: %w", sb.Id, err)
			}
		}
		if shims := e.ShimPIDs(); len(left) > 0 || len(shims) > 0 {
			return fmt.Errorf("%d sandboxes were left, %d shims run", len(left), len(shims))
		}
		return nil
	})
}
