package containerd

import (
	"context"
	"fmt"
	"time"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/namespaces"

	"github.com/berthd/berth/cri"
	"github.com/berthd/berth/cri/internal/store"
)

// PullProgress implements [cri.PullReporter] with containerd's content store. It costs several
// calls, so call it only if somebody wants to see the progress.
func (r *Runtime) PullProgress(ctx context.Context, image string, since time.Time) (cri.PullProgress, error) {
	ctx, cancel := context.WithTimeout(ctx, r.cfg.RequestTimeout)
	defer cancel()
	start := time.Now()
	p, err := r.pullProgress(ctx, image, since) // containerd's client has classified the error
	r.cfg.Observe("pull_progress", time.Since(start), err)
	if err != nil {
		return cri.PullProgress{}, fmt.Errorf("look how far the pull of %s is: %w", image, err)
	}
	return p, nil
}

func (r *Runtime) pullProgress(ctx context.Context, image string, since time.Time) (cri.PullProgress, error) {
	containerd, err := client.NewWithConn(r.imageConn)
	if err != nil {
		return cri.PullProgress{}, err
	}
	ctx = namespaces.WithNamespace(ctx, criNamespace)
	return store.PullProgress(ctx, containerd, r.snapshotter, image, since)
}
