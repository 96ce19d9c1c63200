package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/berthd/berth/client"
	"github.com/berthd/berth/client/api"
	"github.com/berthd/berth/test/env"
)

// subject brings pods up and down in one column.
type subject interface {
	// up and down start to bring pods up or down. Bare calls return when this is done.
	up(ctx context.Context, pods []string) error
	down(ctx context.Context, pods []string) error
	// seen waits until the subject shows that the container has died.
	seen(ctx context.Context, c container) error
	// restart starts a dead container again. Agents do this by themselves.
	restart(ctx context.Context, c container) error
	// pid returns the process id of the agent, 0 if there is none.
	pid() int
	close() error
}

// agent is a subject that runs as a process of its own.
type agent interface {
	subject
	start() error
	kill9()
	// summaries returns what the agent reports about its pods.
	summaries(ctx context.Context) ([]api.PodSummary, error)
	// get returns the agent's answer to a path of the kubelet's API.
	get(ctx context.Context, path string) ([]byte, error)
}

// answer reads an agent's answer.
func answer(resp *http.Response, err error) ([]byte, error) {
	if err != nil {
		return nil, fmt.Errorf("ask the agent: %w", err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, fmt.Errorf("read the agent's answer: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("ask the agent: %s: %s", resp.Status, text)
	}
	return text, nil
}

// defaultMaxPods is how many pods a node may have by default.
const defaultMaxPods = 110

// maxPods returns how many pods an agent's node may have, as its config says it.
func (b *bed) maxPods() int { return max(defaultMaxPods, b.size.burst) }

// manifests is a folder of static pods.
type manifests string

// up moves manifests into the folder by renames. The time starts at the first rename.
func (m manifests) up(_ context.Context, pods []string) error {
	for _, name := range pods {
		if err := os.WriteFile(m.draft(name), []byte(manifest(name)), 0o600); err != nil {
			return fmt.Errorf("write the manifest of %s: %w", name, err)
		}
	}
	for _, name := range pods {
		if err := os.Rename(m.draft(name), m.file(name)); err != nil {
			return fmt.Errorf("put the manifest of %s in place: %w", name, err)
		}
	}
	return nil
}

func (m manifests) down(_ context.Context, pods []string) error {
	for _, name := range pods {
		if err := os.Remove(m.file(name)); err != nil {
			return fmt.Errorf("remove the manifest of %s: %w", name, err)
		}
	}
	return nil
}

func (m manifests) file(pod string) string { return filepath.Join(string(m), pod+".yaml") }

// draft is a path beside the folder, so that the agent sees one change.
func (m manifests) draft(pod string) string { return filepath.Join(filepath.Dir(string(m)), "."+pod) }

// poll is how often an agent is asked. It bounds how exactly the time is known at which the agent
// saw something.
const poll = 2 * time.Millisecond

// until asks an agent until the condition holds for the agent's pods.
func until(ctx context.Context, a agent, holds func([]api.PodSummary) bool) error {
	ctx, cancel := context.WithTimeout(ctx, podTimeout)
	defer cancel()
	tick := time.NewTicker(poll)
	defer tick.Stop()
	for {
		pods, err := a.summaries(ctx)
		if err == nil && holds(pods) {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for the agent's pods: %w", errors.Join(ctx.Err(), err))
		case <-tick.C:
		}
	}
}

// showsDeath reports whether a pod, whose container had never died before, shows that the container
// has died.
func showsDeath(pods []api.PodSummary, pod string) bool {
	for _, p := range pods {
		if p.Name == pod {
			return p.Restarts > 0 || p.Ready == 0 || p.Status != "Running"
		}
	}
	return false
}

// allRun reports whether n pods are shown as running and ready.
func allRun(pods []api.PodSummary, n int) bool {
	for _, p := range pods {
		if p.Status == "Running" && p.Ready == p.Containers {
			n--
		}
	}
	return n <= 0
}

// berth is berth as an agent.
type berth struct {
	manifests
	a   *env.Agent
	api *client.Client
}

func newBerth(ctx context.Context, b *bed) (subject, error) {
	opts := env.AgentOptions{Kubelet: fmt.Sprintf("maxPods: %d", b.maxPods())}
	if b.out.Name == pausedColumn {
		opts.Berth = "sandbox: {pause: always}"
	}
	a, err := b.env.NewAgent(ctx, opts)
	if err != nil {
		return nil, err
	}
	return &berth{manifests: manifests(a.Manifests), a: a, api: client.New(a.Socket)}, nil
}

func (s *berth) start() error { return s.a.Start() }
func (s *berth) kill9()       { s.a.Kill9() }
func (s *berth) pid() int     { return s.a.PID() }
func (s *berth) close() error { s.api.Close(); return s.a.Stop() }

func (s *berth) summaries(ctx context.Context) ([]api.PodSummary, error) { return s.api.Summaries(ctx) }

func (s *berth) get(ctx context.Context, path string) ([]byte, error) {
	return answer(s.a.Get(ctx, path))
}

func (s *berth) restart(context.Context, container) error { return nil }

func (s *berth) seen(ctx context.Context, c container) error {
	return until(ctx, s, func(pods []api.PodSummary) bool { return showsDeath(pods, c.pod) })
}
