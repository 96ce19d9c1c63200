package runtimes

import (
	"context"
	"log/slog"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berthd/berth/configs"
	"github.com/berthd/berth/cri"
	"github.com/berthd/berth/cri/native"
)

// Looker is the part of a runtime for who only looks.
type Looker interface {
	Version(ctx context.Context) (*runtimeapi.VersionResponse, error)
	Status(ctx context.Context, verbose bool) (*runtimeapi.StatusResponse, error)
	ListPodSandbox(ctx context.Context, filter *runtimeapi.PodSandboxFilter) ([]*runtimeapi.PodSandbox, error)
	ListImages(ctx context.Context) ([]*runtimeapi.Image, error)
	ImageFsInfo(ctx context.Context) (*runtimeapi.ImageFsInfoResponse, error)
}

// Sight is what one sees of a node's runtime without running it. End it with Close.
type Sight struct {
	Looker
	// Native says that the agent would run new pods natively. Its containerd then is what is seen.
	Native bool
	// Endpoint is the socket of the runtime, or of the native runtime's containerd.
	Endpoint string
	// Forgotten finds what the runtime has lost track of; nil for the native runtime.
	Forgotten cri.ForgottenFinder
	// Close ends it.
	Close func()
}

// Look returns the runtime that an agent with this config would choose now, without choosing it: it
// changes nothing, and may be called beside an agent. If the runtime does not answer, that of the
// CRI socket is seen, unless the config says native.
func Look(ctx context.Context, cfg *configs.Config) (*Sight, error) {
	r, err := Open(ctx, withoutSocket(cfg), Deps{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return nil, err
	}
	kind := cfg.Berth.Runtime
	if kind == configs.RuntimeAuto {
		known, err := readNotes(cfg.RootDir)
		if err == nil {
			_, silent := r.remote.Version(ctx)
			kind, err = r.kind(ctx, known, silent)
		}
		if err != nil {
			kind = configs.RuntimeRemote
		}
	}
	if kind != configs.RuntimeNative {
		return &Sight{
			Looker: r.containerd, Endpoint: cfg.Kubelet.ContainerRuntimeEndpoint, Forgotten: r.containerd, Close: r.Close,
		}, nil
	}
	seen, err := nativeConfig(cfg, place{Address: Address(cfg), Namespace: Namespace(cfg)})
	if err != nil {
		r.Close()
		return nil, err
	}
	view, err := native.Look(seen)
	if err != nil {
		r.Close()
		return nil, err
	}
	return &Sight{
		Looker: &both{View: view, former: r}, Native: true, Endpoint: Address(cfg),
		Close: func() { view.Close(); r.Close() },
	}, nil
}

// withoutSocket returns the config of an agent that serves no CRI socket.
func withoutSocket(cfg *configs.Config) *configs.Config {
	quiet := *cfg
	quiet.Berth.CRISocket = ""
	return &quiet
}

// both is the native runtime with the sandboxes that the CRI socket may have of before.
type both struct {
	*native.View
	former *Runtime
}

// ListPodSandbox returns the sandboxes of both.
func (b *both) ListPodSandbox(
	ctx context.Context, filter *runtimeapi.PodSandboxFilter,
) ([]*runtimeapi.PodSandbox, error) {
	out, err := b.View.ListPodSandbox(ctx, filter)
	known, unknown := readNotes(b.former.cfg.RootDir)
	if err != nil || unknown != nil || !known.has(configs.RuntimeRemote) {
		return out, err
	}
	more, err := b.former.remote.ListPodSandbox(ctx, filter)
	return append(out, more...), err
}
