package apiserver

import (
	"context"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
)

// startTimeout is how long a server that was asked to stop may take to end its start. systemd waits
// 90 s, and requests may take 60 s to end.
const startTimeout = 20 * time.Second

// hookInterval is how often the server is asked for a hook.
const hookInterval = 50 * time.Millisecond

// fatalHooks are what runs once at the start and exits the process if its context ends before it is
// through. What else runs then has its own deadline, or begins anew at the next start.
func fatalHooks(crds bool) []string {
	hooks := []string{"priority-and-fairness-config-producer"}
	if crds {
		hooks = append(hooks, "crd-informer-synced")
	}
	return hooks
}

// afterStart returns a context that ends when ctx does, but not before those hooks are through. If
// the server has failed, nobody waits for them. The caller calls end.
func afterStart(
	ctx context.Context, loopback *rest.Config, hooks []string,
) (serving context.Context, end func(), err error) {
	client, err := discovery.NewDiscoveryClientForConfig(loopback)
	if err != nil {
		return nil, nil, fmt.Errorf("make a client: %w", err)
	}
	serving, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var waiting sync.WaitGroup
	started := make(chan struct{})
	waiting.Go(func() {
		if awaitHooks(serving, client, hooks) {
			close(started)
		}
	})
	waiting.Go(func() {
		defer cancel()
		select {
		case <-ctx.Done():
		case <-serving.Done():
			return
		}
		if err := failure(ctx); err != nil {
			klog.ErrorS(err, "The server ends") // a hook may exit the process before Run says so
			return
		}
		select {
		case <-started:
		case <-serving.Done():
		case <-time.After(startTimeout):
		}
	})
	return serving, func() {
		cancel()
		waiting.Wait()
	}, nil
}

// awaitHooks waits until those hooks of the server's start are through, and returns false if the
// context ends first. A hook that the server does not have is not waited for.
func awaitHooks(ctx context.Context, client discovery.DiscoveryInterface, hooks []string) bool {
	for _, hook := range hooks {
		for {
			err := client.RESTClient().Get().AbsPath("/readyz/poststarthook/" + hook).Do(ctx).Error()
			if err == nil || apierrors.IsNotFound(err) {
				break
			}
			if !sleep(ctx, hookInterval) {
				return false
			}
		}
	}
	return ctx.Err() == nil
}
