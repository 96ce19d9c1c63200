package remote

import (
	"context"
	"fmt"
	"time"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/pkg/namespaces"
)

// Pin has containerd keep an image, by its full name, from garbage collection. The CRI has no such call: errdefs.IsNotImplemented on other runtimes,
// errdefs.IsNotFound where there is no such image. containerd before 1.7 takes no notice.
func (r *Runtime) Pin(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, r.cfg.RequestTimeout)
	defer cancel()
	start := time.Now()
	err := r.pin(ctx, name) // containerd's client has classified it
	r.cfg.Observe("pin_image", time.Since(start), err)
	if err != nil {
		return fmt.Errorf("pin image %s: %w", name, err)
	}
	return nil
}

func (r *Runtime) pin(ctx context.Context, name string) error {
	containerd, err := client.NewWithConn(r.imgConn)
	if err != nil {
		return err
	}
	ctx = namespaces.WithNamespace(ctx, criNamespace)
	_, err = containerd.ImageService().Update(ctx, images.Image{Name: name, Labels: map[string]string{pinnedLabel: pinnedValue}}, "labels."+pinnedLabel)
	return err
}
