package native

import (
	"context"
	"fmt"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/cio"
	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berthd/berth/cri"
	"github.com/berthd/berth/cri/native/images"
)

const (
	// kindLabel says in containerd what a container is, for people who look there.
	kindLabel = "berth.dev/kind"
	// sandboxAnnotation of a runtime spec makes the shim of the pause process serve the sandbox's
	// containers, too (containerd's runc shim, its group labels).
	sandboxAnnotation = "io.kubernetes.cri.sandbox-id"
)

// PauseMode says when a sandbox has a pause process.
type PauseMode string

// The pause modes.
const (
	// PauseAuto runs a pause process only in sandboxes that need one.
	PauseAuto PauseMode = "auto"
	// PauseAlways runs one in every sandbox.
	PauseAlways PauseMode = "always"
	// PauseNever runs none, and refuses sandboxes that need one.
	PauseNever PauseMode = "never"
)

// withShim lets the shim of the pause process serve a container. Without a pause process each
// container has a shim: a shim ends with its last container, and one that is about to end would
// take the next container of its sandbox down with it.
func (s *sandbox) withShim() oci.SpecOpts {
	if !s.pause {
		return oci.WithAnnotations(nil)
	}
	return oci.WithAnnotations(map[string]string{sandboxAnnotation: s.id})
}

// pauseImage returns the image of sandboxes, and pulls it if it is missing.
func (r *Runtime) pauseImage(ctx context.Context) (*images.Usable, error) {
	img, err := r.Use(ctx, r.cfg.PauseImage)
	if !errdefs.IsNotFound(err) {
		return img, err
	}
	if _, err := r.PullImage(ctx, &runtimeapi.ImageSpec{Image: r.cfg.PauseImage}, nil, nil); err != nil {
		return nil, err
	}
	return r.Use(ctx, r.cfg.PauseImage)
}

// createPause makes the sandbox's container with its first process, which has made the rest of its
// namespaces and waits.
func (r *Runtime) createPause(ctx context.Context, sb *sandbox) error {
	if !sb.pause {
		return nil
	}
	img, err := r.pauseImage(ctx)
	if err != nil {
		return err
	}
	record, _ := sb.snapshot() // the network notes its addresses meanwhile
	runtime, err := r.handler(record.Handler)
	if err != nil {
		return err
	}
	leased, release, err := r.Leased(ctx) // a task keeps its own things
	if err != nil {
		return err
	}
	defer release()
	c, err := r.client.NewContainer(leased, sb.id,
		client.WithImage(img),
		client.WithSnapshotter(img.Snapshotter),
		client.WithNewSnapshot(sb.id, img, userns(sb.namespaces()).snapshot()...),
		client.WithContainerLabels(map[string]string{kindLabel: "sandbox"}),
		client.WithRuntime(shim, runtime),
		client.WithNewSpec(r.pauseSpec(sb, img)...))
	if err != nil {
		return err
	}
	task, err := r.newTask(ctx, c, cio.NullIO)
	if err != nil {
		return err
	}
	sb.mu.Lock()
	sb.task = task
	sb.mu.Unlock()
	return nil
}

func (r *Runtime) deletePause(ctx context.Context, sb *sandbox) error {
	if !sb.pause {
		return nil
	}
	if err := r.deleteContainer(ctx, sb.id); err != nil {
		return err
	}
	return r.removeCgroup(sb.config.GetLinux().GetCgroupParent(), sb.id)
}

// startPause lets the process go on, once the record says where it is.
func (r *Runtime) startPause(ctx context.Context, sb *sandbox) error {
	err := r.changeSandbox(sb, func(rec *sandboxRecord) { rec.Up = true })
	if err != nil || !sb.pause {
		return err
	}
	if err := sb.task.Start(ctx); err != nil {
		return err
	}
	return r.watchPause(sb, sb.task)
}

// watchPause makes the sandbox not ready when its process ends.
func (r *Runtime) watchPause(sb *sandbox, task client.Task) error {
	ended := make(chan struct{})
	sb.mu.Lock()
	sb.task, sb.ended = task, ended
	sb.mu.Unlock()
	return r.watch(task, func(exit) {
		ctx, cancel := undoing(r.closing)
		defer cancel()
		if err := deleteTask(ctx, task); err != nil {
			r.cfg.Logger.Warn("the pause process of a sandbox has ended, and containerd could not remove it yet",
				"sandbox", sb.id, "error", err)
		}
		close(ended)
		r.emit(cri.ContainerStopped, sb.id, sb.uid())
	})
}

// endPause kills the process.
func (r *Runtime) endPause(ctx context.Context, sb *sandbox) error {
	if !sb.pause {
		return nil
	}
	sb.mu.Lock()
	task, ended := sb.task, sb.ended
	sb.mu.Unlock()
	if ended != nil {
		// Who watches the process removes it.
		if err := kill(ctx, task, unix.SIGKILL); err != nil {
			return err
		}
		if err := await(ctx, ended); err != nil {
			return fmt.Errorf("wait for its end: %w", err)
		}
	}
	return r.endTask(ctx, sb.id)
}
