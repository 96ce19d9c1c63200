package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/berthd/berth/client"
	"github.com/berthd/berth/client/api"
	"github.com/berthd/berth/test/env"
)

// subject brings pods up and down in one column.
type subject interface {
	// up and down begin to bring pods up or down; bare calls return when it is done.
	up(ctx context.Context, pods []string) error
	down(ctx context.Context, pods []string) error
	// seen returns when the subject shows that the container has died.
	seen(ctx context.Context, c container) error
	// restart starts a dead container again; agents do that by themselves.
	restart(ctx context.Context, c container) error
	// pid is the agent's process, 0 where there is none.
	pid() int
	close() error
}

// agent is a subject that runs as a process of its own.
type agent interface {
	subject
	start() error
	kill9()
	// summaries is what the agent says of its pods.
	summaries(ctx context.Context) ([]api.PodSummary, error)
}

// manifests is a folder of static pods.
type manifests string

// up puts manifests in place by renames, the first of which is the beginning.
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

// draft lies beside the folder, so that the agent sees one change.
func (m manifests) draft(pod string) string { return filepath.Join(filepath.Dir(string(m)), "."+pod) }

// poll is how often an agent is asked, which bounds how exactly it is known when it saw something.
const poll = 2 * time.Millisecond

// until asks an agent until the condition holds for its pods.
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

// showsDeath tells whether the pod of a container that had never died shows that it now has.
func showsDeath(pods []api.PodSummary, pod string) bool {
	for _, p := range pods {
		if p.Name == pod {
			return p.Restarts > 0 || p.Ready == 0 || p.Status != "Running"
		}
	}
	return false
}

// allRun tells whether n pods are shown as running and ready.
func allRun(pods []api.PodSummary, n int) bool {
	for _, p := range pods {
		if p.Status == "Running" && p.Ready == p.Containers {
			n--
		}
	}
	return n <= 0
}

// berth is the agent that all this is about.
type berth struct {
	manifests
	a   *env.Agent
	api *client.Client
}

func newBerth(ctx context.Context, b *bed) (subject, error) {
	a, err := b.env.NewAgent(ctx, env.AgentOptions{})
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
func (s *berth) restart(context.Context, container) error                { return nil }

func (s *berth) seen(ctx context.Context, c container) error {
	return until(ctx, s, func(pods []api.PodSummary) bool { return showsDeath(pods, c.pod) })
}
