package containerd

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/pkg/namespaces"
)

// Pin implements [cri.ImagePinner]. The CRI has no such call, containerd has. Containerd before 1.7
// ignores pins.
func (r *Runtime) Pin(ctx context.Context, name string) error {
	return r.label(ctx, "pin_image", name, pinnedValue)
}

// Unpin implements [cri.ImagePinner].
func (r *Runtime) Unpin(ctx context.Context, name string) error {
	return r.label(ctx, "unpin_image", name, "")
}

// label sets the value of the label that pins an image, and observes that as an operation. Without
// a value there is no label.
func (r *Runtime) label(ctx context.Context, operation, name, value string) error {
	ctx, cancel := context.WithTimeout(ctx, r.cfg.RequestTimeout)
	defer cancel()
	start := time.Now()
	err := r.setPinned(ctx, name, value) // containerd's client has classified the error
	r.cfg.Observe(operation, time.Since(start), err)
	if err != nil {
		return fmt.Errorf("%s %s: %w", strings.ReplaceAll(operation, "_", " "), name, err)
	}
	return nil
}

func (r *Runtime) setPinned(ctx context.Context, name, value string) error {
	containerd, err := client.NewWithConn(r.imageConn)
	if err != nil {
		return err
	}
	ctx = namespaces.WithNamespace(ctx, criNamespace)
	labelled := images.Image{Name: name, Labels: map[string]string{pinnedLabel: value}}
	_, err = containerd.ImageService().Update(ctx, labelled, "labels."+pinnedLabel)
	return err
}
