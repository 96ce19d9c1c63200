package containerd

import (
	"context"
	"fmt"
	"time"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/pkg/namespaces"
)

// Pin implements [cri.ImagePinner]. The CRI has no such call, containerd has. Containerd before 1.7
// ignores pins.
func (r *Runtime) Pin(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, r.cfg.RequestTimeout)
	defer cancel()
	start := time.Now()
	err := r.pin(ctx, name) // containerd's client has classified the error
	r.cfg.Observe("pin_image", time.Since(start), err)
	if err != nil {
		return fmt.Errorf("pin image %s: %w", name, err)
	}
	return nil
}

func (r *Runtime) pin(ctx context.Context, name string) error {
	containerd, err := client.NewWithConn(r.imageConn)
	if err != nil {
		return err
	}
	ctx = namespaces.WithNamespace(ctx, criNamespace)
	pinned := images.Image{Name: name, Labels: map[string]string{pinnedLabel: pinnedValue}}
	_, err = containerd.ImageService().Update(ctx, pinned, "labels."+pinnedLabel)
	return err
}
