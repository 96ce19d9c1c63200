//go:build integration

package containerd_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berthd/berth/cri"
	"github.com/berthd/berth/test/env"
)

// TestInterruptedSandboxesLeaveNothing cancels RunPodSandbox at every moment. Removing the sandbox
// and ending forgotten shims leaves nothing. containerd forgets some of these sandboxes and keeps
// their tasks; of others it forgets the shim.
func TestInterruptedSandboxesLeaveNothing(t *testing.T) {
	e := env.Containerd(t, env.Options{})
	rt := dialled(t, e)
	for i := range 120 {
		after := time.Duration(30+i) * time.Millisecond
		uid := fmt.Sprintf("interrupted-%d", i)
		ctx, cancel := context.WithTimeout(t.Context(), after)
		_, err := rt.RunPodSandbox(ctx, &runtimeapi.PodSandboxConfig{
			Metadata:     &runtimeapi.PodSandboxMetadata{Name: uid, Uid: uid, Namespace: "default"},
			Hostname:     "interrupted",
			LogDirectory: t.TempDir(),
			Labels:       map[string]string{cri.LabelPodUID: uid},
			Linux:        &runtimeapi.LinuxPodSandboxConfig{CgroupParent: e.CgroupRoot},
		}, "")
		cancel()
		if err != nil && !errors.Is(err, context.DeadlineExceeded) {
			t.Logf("interrupted after %s: %v", after, err)
		}
	}
	env.Eventually(t, "nothing is left", func() error {
		left, err := rt.ListPodSandbox(t.Context(), nil)
		if err != nil {
			return fmt.Errorf("listing sandboxes: %w", err)
		}
		if err := errors.Join(removeSandboxes(t, rt)...); err != nil {
			return err
		}
		if _, err := rt.EndForgottenShims(t.Context()); err != nil {
			return fmt.Errorf("ending forgotten shims: %w", err)
		}
		if shims := e.ShimPIDs(); len(left) > 0 || len(shims) > 0 {
			return fmt.Errorf("%d sandboxes were left, %d shims run", len(left), len(shims))
		}
		return nil
	})
}

// TestKilledRuntimeLeavesNoNetworkNamespace kills a containerd during many calls of RunPodSandbox.
// This leaves network namespaces that no sandbox has, because containerd makes a namespace before
// it records it. Removing the sandboxes, and then what containerd has forgotten, leaves nothing.
func TestKilledRuntimeLeavesNoNetworkNamespace(t *testing.T) {
	e := env.Containerd(t, env.Options{})
	rt := dialled(t, e)
	const rounds, each = 5, 10
	forgotten := 0
	for round := range rounds {
		var started sync.WaitGroup
		for i := range each {
			uid := fmt.Sprintf("killed-%d-%d", round, i)
			dir := t.TempDir()
			started.Go(func() {
				// the kill may interrupt this call
				_, _ = rt.RunPodSandbox(t.Context(), &runtimeapi.PodSandboxConfig{
					Metadata:     &runtimeapi.PodSandboxMetadata{Name: uid, Uid: uid, Namespace: "default"},
					Hostname:     "killed",
					LogDirectory: dir,
					Labels:       map[string]string{cri.LabelPodUID: uid},
					Linux:        &runtimeapi.LinuxPodSandboxConfig{CgroupParent: e.CgroupRoot},
				}, "")
			})
		}
		time.Sleep(time.Duration(5+25*round) * time.Millisecond) // the moment of the kill
		if err := e.Kill9(); err != nil {
			t.Fatal(err)
		}
		started.Wait()
		if err := e.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		env.Eventually(t, "nothing is left", func() error {
			if err := errors.Join(removeSandboxes(t, rt)...); err != nil {
				return err
			}
			_, shimErr := rt.EndForgottenShims(t.Context())
			n, netnsErr := rt.RemoveForgottenPaths(t.Context())
			forgotten += n
			if err := errors.Join(shimErr, netnsErr); err != nil {
				return err
			}
			if left := e.Leaks(); strings.Contains(strings.Join(left, "\n"), "network namespace ") {
				return fmt.Errorf("left: %q", left)
			}
			return nil
		})
	}
	t.Logf("%d network namespaces of %d sandboxes were forgotten", forgotten, rounds*each)
}

// removeSandboxes stops and removes all sandboxes, and returns the errors.
func removeSandboxes(t *testing.T, rt cri.Runtime) (errs []error) {
	t.Helper()
	left, err := rt.ListPodSandbox(t.Context(), nil)
	if err != nil {
		return []error{fmt.Errorf("listing sandboxes: %w", err)}
	}
	for _, sb := range left {
		if err := errors.Join(rt.StopPodSandbox(t.Context(), sb.Id),
			rt.RemovePodSandbox(t.Context(), sb.Id)); err != nil {
			errs = append(errs, fmt.Errorf("removing sandbox %s: %w", sb.Id, err))
		}
	}
	return errs
}
