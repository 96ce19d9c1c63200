package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sync/errgroup"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// bare is the floor: the calls that a pod cannot do without, and nothing around them.
type bare struct {
	*bed
	// parallel is how many pods are worked on at a time.
	parallel int

	mu        sync.Mutex
	sandboxes map[string]string
}

func newBare(_ context.Context, b *bed) (subject, error) {
	return &bare{bed: b, parallel: 1, sandboxes: map[string]string{}}, nil
}

func (b *bare) pid() int                  { return 0 }
func (b *bare) close() error              { return nil }
func (b *bare) logDir(name string) string { return filepath.Join(b.env.LogsDir, name) }

func (b *bare) each(pods []string, f func(string) error) error {
	var g errgroup.Group
	g.SetLimit(b.parallel)
	for _, name := range pods {
		g.Go(func() error { return f(name) })
	}
	return g.Wait()
}

// up runs pods; it returns when all of them run.
func (b *bare) up(ctx context.Context, pods []string) error {
	return b.each(pods, func(name string) error {
		if err := os.MkdirAll(filepath.Join(b.logDir(name), "main"), 0o755); err != nil {
			return fmt.Errorf("make the log folder of %s: %w", name, err)
		}
		resp, err := b.env.Runtime().RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: b.sandboxConfig(name)})
		if err != nil {
			return fmt.Errorf("run the sandbox of %s: %w", name, err)
		}
		b.mu.Lock()
		b.sandboxes[name] = resp.PodSandboxId
		b.mu.Unlock()
		return b.start(ctx, name, 0)
	})
}

// start makes and starts the container of a pod.
func (b *bare) start(ctx context.Context, name string, attempt uint32) error {
	c, err := b.env.Runtime().CreateContainer(ctx, &runtimeapi.CreateContainerRequest{
		PodSandboxId: b.sandbox(name), Config: containerConfig(name, attempt), SandboxConfig: b.sandboxConfig(name),
	})
	if err != nil {
		return fmt.Errorf("create the container of %s: %w", name, err)
	}
	if _, err := b.env.Runtime().StartContainer(ctx, &runtimeapi.StartContainerRequest{ContainerId: c.ContainerId}); err != nil {
		return fmt.Errorf("start the container of %s: %w", name, err)
	}
	return nil
}

func (b *bare) sandbox(name string) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.sandboxes[name]
}

// down removes pods; it returns when they are gone.
func (b *bare) down(ctx context.Context, pods []string) error {
	return b.each(pods, func(name string) error {
		rt, id := b.env.Runtime(), b.sandbox(name)
		list, err := rt.ListContainers(ctx, &runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{PodSandboxId: id}})
		if err != nil {
			return fmt.Errorf("list the containers of %s: %w", name, err)
		}
		for _, c := range list.Containers {
			if _, err := rt.StopContainer(ctx, &runtimeapi.StopContainerRequest{ContainerId: c.Id, Timeout: 30}); err != nil {
				return fmt.Errorf("stop the container of %s: %w", name, err)
			}
		}
		if _, err := rt.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: id}); err != nil {
			return fmt.Errorf("stop the sandbox of %s: %w", name, err)
		}
		if _, err := rt.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: id}); err != nil {
			return fmt.Errorf("remove the sandbox of %s: %w", name, err)
		}
		return nil
	})
}

// seen returns when containerd tells of the exit: nothing can see it earlier.
func (b *bare) seen(ctx context.Context, c container) error {
	_, err := b.watch.wait(ctx, podTimeout, c.mark, 1, of(c.id, func(e event) bool { return e.kind == exited }))
	return err
}

func (b *bare) restart(ctx context.Context, c container) error { return b.start(ctx, c.pod, 1) }
