package native

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berthd/berth/cri/native/images"
)

// View is a native runtime for who only looks, also while a [Runtime] works on the same directory.
// It answers for containerd, by which the runtime stands or falls. Make one with [Look], end it
// with [View.Close].
type View struct {
	*images.Service
	cfg    Config
	client *client.Client
}

// Look returns a view. It needs of the config what [New] needs, and makes no call.
func Look(cfg Config) (*View, error) {
	containerd, err := client.New(cfg.Containerd, client.WithDefaultNamespace(cfg.Namespace))
	if err != nil {
		return nil, fmt.Errorf("reach containerd at %s: %w", cfg.Containerd, err)
	}
	return &View{Service: images.New(cfg.Images, containerd), cfg: cfg, client: containerd}, nil
}

// Close ends the view's connection.
func (v *View) Close() {
	v.Service.Close()
	_ = v.client.Close()
}

// Version returns the version of containerd.
func (v *View) Version(ctx context.Context) (*runtimeapi.VersionResponse, error) {
	said, err := v.client.Version(namespaces.WithNamespace(ctx, v.cfg.Namespace))
	if err != nil {
		return nil, fmt.Errorf("ask containerd at %s for its version: %w", v.cfg.Containerd, err)
	}
	return &runtimeapi.VersionResponse{
		Version: "0.1.0", RuntimeName: "containerd", RuntimeVersion: said.Version, RuntimeApiVersion: apiVersion,
	}, nil
}

// Status returns the conditions that the runtime would report.
func (v *View) Status(ctx context.Context, _ bool) (*runtimeapi.StatusResponse, error) {
	_, down := v.Version(ctx)
	return &runtimeapi.StatusResponse{Status: &runtimeapi.RuntimeStatus{
		Conditions: conditions(down, v.cfg.Network.Status(ctx)),
	}}, nil
}

// ListPodSandbox returns the recorded sandboxes, with no more than what identifies them. It takes
// no filter.
func (v *View) ListPodSandbox(
	context.Context, *runtimeapi.PodSandboxFilter,
) ([]*runtimeapi.PodSandbox, error) {
	root, err := os.OpenRoot(filepath.Join(v.cfg.RootDir, sandboxesDir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look for the records of sandboxes: %w", err)
	}
	defer func() { _ = root.Close() }()
	found, err := records[*sandboxRecord]{root: root}.all()
	if err != nil {
		return nil, err
	}
	var out []*runtimeapi.PodSandbox
	for _, record := range found {
		sb := newSandbox(*record)
		out = append(out, &runtimeapi.PodSandbox{Id: sb.id, Metadata: sb.config.GetMetadata(), CreatedAt: record.CreatedAt})
	}
	return out, nil
}
