package control

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// Options say what runs.
type Options struct {
	// Loopback is the API server's connection to itself, which may do everything. Controllers and the
	// scheduler act as users of their own over it.
	Loopback *rest.Config
	// Informers are the API server's own. They may have started already.
	Informers informers.SharedInformerFactory
	// CA and CAKey are the files of the authority that signs certificates and that pods trust.
	CA, CAKey string
	// Controllers runs the controllers, Workloads also those that make pods, Scheduler the scheduler.
	Controllers, Workloads, Scheduler bool
	// Apps says that the API server serves apps/v1.
	Apps bool
}

// Run runs the controllers and the scheduler until the context ends or one of them fails to start.
// The API server serves already.
func Run(ctx context.Context, opts Options) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	client, err := kubernetes.NewForConfig(opts.Loopback)
	if err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	err = ensureBindings(ctx, client)
	if err == nil {
		err = awaitRights(ctx, client)
	}
	var set *controllerSet
	if err == nil {
		set, err = unlessEnding(ctx, func() (*controllerSet, error) { return buildControllers(ctx, opts) })
	}
	if ctx.Err() != nil {
		return nil // and so everything fails
	}
	if err != nil {
		return err
	}
	set.start(ctx)
	var all sync.WaitGroup
	for _, c := range set.controllers {
		all.Go(func() { c.Run(ctx) })
	}
	if opts.Scheduler {
		all.Go(func() {
			if err := runScheduler(ctx, opts, set.context.InformerFactory); err != nil {
				cancel(err)
			}
		})
	}
	<-ctx.Done() // also if nothing is to run
	all.Wait()
	if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
		return fmt.Errorf("run the scheduler: %w", cause)
	}
	return nil
}

// unlessEnding calls build unless the server ends. Informers that have stopped give upstream's
// constructors nothing, and these panic: such a panic is the end that was asked for.
func unlessEnding[T any](ctx context.Context, build func() (T, error)) (made T, err error) {
	if err := ctx.Err(); err != nil {
		return made, err
	}
	defer func() {
		if r := recover(); r != nil {
			if ctx.Err() == nil {
				panic(r)
			}
			err = ctx.Err()
		}
	}()
	return build()
}
