package native

import (
	"context"
	"errors"
	"os"
	"testing"
	"testing/synctest"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Calls wait for a sandbox and its container while those are removed. Afterwards there is nothing
// to do: no record comes back, and nothing is given back twice.
func TestCallsBehindRemoval(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("an unmount needs root")
	}
	synctest.Test(t, func(t *testing.T) {
		r := fakeContainerd{services: []client.ServicesOpt{client.WithContainerStore(noContainers{})}}.runtime(t)
		released := 0
		r.selinux.release = func(string) { released++ }
		sb := r.has(t, "sb", nil)
		sb.record.SELinux.Process = "system_u:system_r:container_t:s0:c1,c2"
		config := &runtimeapi.ContainerConfig{Metadata: &runtimeapi.ContainerMetadata{Name: "main"}}
		record := containerRecord{ID: "c", SandboxID: sb.id, Config: message[*runtimeapi.ContainerConfig]{config}}
		c := newContainer(record, "uid")
		err := errors.Join(r.store.addContainer(c), r.changeContainer(c, func(*containerRecord) {}))
		if err != nil {
			t.Fatal(err)
		}

		starts := r.behind(t, c.turn, func(ctx context.Context) error { return r.StartContainer(ctx, c.id) })
		updates := r.behind(t, c.turn, func(ctx context.Context) error {
			_, err := r.updateLimits(ctx, c, nil, func() (*specs.LinuxResources, error) { return &specs.LinuxResources{}, nil })
			return err
		})
		again := r.behind(t, c.turn, func(ctx context.Context) error { return r.RemoveContainer(ctx, c.id) })
		ctx, cancel := r.bounded(t.Context())
		defer cancel()
		if err := r.forgetContainer(ctx, c); err != nil {
			t.Fatal(err)
		}
		c.turn.give()
		for name, waiting := range map[string]<-chan error{"start": starts, "update": updates} {
			if err := <-waiting; !errdefs.IsNotFound(err) {
				t.Errorf("%s behind a removal: got %v, want that there is none", name, err)
			}
		}
		if err := <-again; err != nil {
			t.Errorf("a removal behind a removal: %v", err)
		}

		removes := r.behind(t, sb.turn, func(ctx context.Context) error { return r.RemovePodSandbox(ctx, sb.id) })
		stops := r.behind(t, sb.turn, func(ctx context.Context) error { return r.StopPodSandbox(ctx, sb.id) })
		if err := r.removeSandbox(ctx, sb); err != nil {
			t.Fatal(err)
		}
		sb.turn.give()
		if err := errors.Join(<-stops, <-removes); err != nil {
			t.Errorf("a stop and a removal behind a removal: %v", err)
		}
		sandboxes, err := r.store.sandboxRecords.all()
		if err != nil || len(sandboxes) > 0 {
			t.Errorf("left are the records %v, %v", sandboxes, err)
		}
		containers, err := r.store.containerRecords.all()
		if err != nil || len(containers) > 0 {
			t.Errorf("left are the records %v, %v", containers, err)
		}
		if released != 1 {
			t.Errorf("the SELinux level was given back %d times", released)
		}
	})
}

// behind makes a call that waits for a turn, which it takes before unless somebody has it.
func (r *Runtime) behind(t *testing.T, turn turn, call func(context.Context) error) <-chan error {
	t.Helper()
	select {
	case turn <- struct{}{}:
	default:
	}
	done := make(chan error, 1)
	go func() { done <- call(t.Context()) }()
	synctest.Wait()
	select {
	case err := <-done:
		t.Errorf("the call has not waited: %v", err)
		done <- err
	default:
	}
	return done
}
