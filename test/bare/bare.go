// Package bare brings pods up and down with only the CRI calls that a pod needs. This is the lower
// bound for every agent.
//
// Truth owned: which sandbox each pod has.
//
// Concurrency: a [Runner] is safe for concurrent use on different pods.
package bare

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berthd/berth/test/env"
)

// stopTimeout is how many seconds a container has to end.
const stopTimeout = 30

// Runner makes bare calls to an environment's containerd.
type Runner struct {
	env *env.Env

	mu        sync.Mutex
	sandboxes map[string]string
}

// New returns a runner without pods.
func New(e *env.Env) *Runner { return &Runner{env: e, sandboxes: map[string]string{}} }

func (r *Runner) logDir(name string) string { return filepath.Join(r.env.LogsDir, name) }

// Up runs a pod. It returns the id of the pod's container when the container runs.
func (r *Runner) Up(ctx context.Context, name string) (id string, err error) {
	if err := os.MkdirAll(filepath.Join(r.logDir(name), "main"), 0o755); err != nil {
		return "", fmt.Errorf("make the log folder of %s: %w", name, err)
	}
	resp, err := r.env.Runtime().RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: r.sandboxConfig(name)})
	if err != nil {
		return "", fmt.Errorf("run the sandbox of %s: %w", name, err)
	}
	r.mu.Lock()
	r.sandboxes[name] = resp.PodSandboxId
	r.mu.Unlock()
	return r.Start(ctx, name, 0)
}

// Start makes and starts the container of a pod with this attempt, and returns the container's id.
func (r *Runner) Start(ctx context.Context, name string, attempt uint32) (id string, err error) {
	c, err := r.env.Runtime().CreateContainer(ctx, &runtimeapi.CreateContainerRequest{
		PodSandboxId: r.sandbox(name), Config: containerConfig(name, attempt), SandboxConfig: r.sandboxConfig(name),
	})
	if err != nil {
		return "", fmt.Errorf("create the container of %s: %w", name, err)
	}
	if _, err := r.env.Runtime().StartContainer(ctx, &runtimeapi.StartContainerRequest{
		ContainerId: c.ContainerId,
	}); err != nil {
		return "", fmt.Errorf("start the container of %s: %w", name, err)
	}
	return c.ContainerId, nil
}

func (r *Runner) sandbox(name string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.sandboxes[name]
}

// Down removes a pod. It returns when the pod is gone.
func (r *Runner) Down(ctx context.Context, name string) error {
	rt, id := r.env.Runtime(), r.sandbox(name)
	list, err := rt.ListContainers(ctx, &runtimeapi.ListContainersRequest{
		Filter: &runtimeapi.ContainerFilter{PodSandboxId: id},
	})
	if err != nil {
		return fmt.Errorf("list the containers of %s: %w", name, err)
	}
	for _, c := range list.Containers {
		if _, err := rt.StopContainer(ctx, &runtimeapi.StopContainerRequest{
			ContainerId: c.Id, Timeout: stopTimeout,
		}); err != nil {
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
}
