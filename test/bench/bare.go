package main

import (
	"context"

	"golang.org/x/sync/errgroup"

	barepods "github.com/berthd/berth/test/bare"
)

// bare is the lower bound: only the calls that a pod needs.
type bare struct {
	*bed
	pods *barepods.Runner
	// parallel is how many pods are started or removed at a time.
	parallel int
}

func newBare(_ context.Context, b *bed) (subject, error) {
	return &bare{bed: b, pods: barepods.New(b.env), parallel: 1}, nil
}

func (b *bare) pid() int     { return 0 }
func (b *bare) close() error { return nil }

func (b *bare) each(pods []string, f func(string) error) error {
	var g errgroup.Group
	g.SetLimit(b.parallel)
	for _, name := range pods {
		g.Go(func() error { return f(name) })
	}
	return g.Wait()
}

// up runs pods. It returns when all of them run.
func (b *bare) up(ctx context.Context, pods []string) error {
	return b.each(pods, func(name string) error {
		_, err := b.pods.Up(ctx, name)
		return err
	})
}

// down removes pods. It returns when they are gone.
func (b *bare) down(ctx context.Context, pods []string) error {
	return b.each(pods, func(name string) error { return b.pods.Down(ctx, name) })
}

// seen waits for containerd's event about the exit. Nothing can see the exit earlier.
func (b *bare) seen(ctx context.Context, c container) error {
	_, err := b.watch.wait(ctx, podTimeout, c.mark, 1, of(c.id, func(e event) bool { return e.kind == exited }))
	return err
}

func (b *bare) restart(ctx context.Context, c container) error {
	_, err := b.pods.Start(ctx, c.pod, 1)
	return err
}
