// Package deviceplugin is a device plugin for tests: it has the devices that a test gives it, and
// answers as the test says.
//
// Purpose: the other side of the device plugin API (v1beta1), with the faults that plugins have.
//
// Truth owned: the plugin's devices, and the requests that it got.
//
// Concurrency: a [Plugin] is safe for concurrent use.
package deviceplugin

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// Config says what a plugin is.
type Config struct {
	// Dir is the directory of sockets, Socket the name of the plugin's own in it.
	Dir, Socket string
	// Resource is the name of the plugin's resource.
	Resource string
	Options  *pluginapi.DevicePluginOptions
	// Devices are those that the plugin has at first.
	Devices []*pluginapi.Device
	// Allocate, Prefer and PreStart answer the requests of that name. By default Allocate sets the
	// variable DEVICES, and the others answer nothing.
	Allocate func(ctx context.Context, ids []string) (*pluginapi.AllocateResponse, error)
	Prefer   func(r *pluginapi.ContainerPreferredAllocationRequest) []string
	PreStart func(ids []string) error
}

// Plugin is a plugin that serves its socket. Make it with [Start].
type Plugin struct {
	pluginapi.UnimplementedDevicePluginServer

	cfg    Config
	server *grpc.Server
	served chan struct{}

	mu      sync.Mutex
	devices []*pluginapi.Device
	changed chan struct{}
	// watchers is how many ListAndWatch requests are open.
	watchers  int
	allocated [][]string
}

// Start serves a plugin. It does not register it.
func Start(cfg Config) (*Plugin, error) {
	listener, err := (&net.ListenConfig{}).Listen(context.Background(), "unix", filepath.Join(cfg.Dir, cfg.Socket))
	if err != nil {
		return nil, fmt.Errorf("serving a device plugin: %w", err)
	}
	p := &Plugin{
		cfg: cfg, server: grpc.NewServer(), served: make(chan struct{}), devices: cfg.Devices,
		changed: make(chan struct{}),
	}
	pluginapi.RegisterDevicePluginServer(p.server, p)
	go func() {
		defer close(p.served)
		_ = p.server.Serve(listener) // it ends with Stop
	}()
	return p, nil
}

// Stop ends the plugin, as its death would, and removes its socket.
func (p *Plugin) Stop() {
	p.server.Stop()
	<-p.served
}

// Register registers the plugin at the agent's socket in its directory.
func (p *Plugin) Register(ctx context.Context) error {
	return RegisterAs(ctx, p.cfg.Dir, &pluginapi.RegisterRequest{
		Version: pluginapi.Version, Endpoint: p.cfg.Socket, ResourceName: p.cfg.Resource,
	})
}

// RegisterAs sends any request for registration to the agent's socket in a directory.
func RegisterAs(ctx context.Context, dir string, r *pluginapi.RegisterRequest) error {
	conn, err := grpc.NewClient("unix://"+filepath.Join(dir, "kubelet.sock"),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close()
	_, err = pluginapi.NewRegistrationClient(conn).Register(ctx, r, grpc.WaitForReady(true))
	return err
}

// Set gives the plugin other devices, and tells the agent.
func (p *Plugin) Set(devices ...*pluginapi.Device) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.devices = devices
	close(p.changed)
	p.changed = make(chan struct{})
}

// Watched reports whether the agent watches the plugin's devices.
func (p *Plugin) Watched() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.watchers > 0
}

// Allocated returns the devices of each request for devices, in their order.
func (p *Plugin) Allocated() [][]string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.allocated)
}

// GetDevicePluginOptions returns the plugin's options.
func (p *Plugin) GetDevicePluginOptions(
	context.Context, *pluginapi.Empty,
) (*pluginapi.DevicePluginOptions, error) {
	if p.cfg.Options == nil {
		return &pluginapi.DevicePluginOptions{}, nil
	}
	return p.cfg.Options, nil
}

// ListAndWatch sends the plugin's devices, and sends them again after each change.
func (p *Plugin) ListAndWatch(
	_ *pluginapi.Empty, stream grpc.ServerStreamingServer[pluginapi.ListAndWatchResponse],
) error {
	p.watch(1)
	defer p.watch(-1)
	for {
		p.mu.Lock()
		devices, changed := p.devices, p.changed
		p.mu.Unlock()
		if err := stream.Send(&pluginapi.ListAndWatchResponse{Devices: devices}); err != nil {
			return err
		}
		select {
		case <-stream.Context().Done():
			return nil
		case <-changed:
		}
	}
}

func (p *Plugin) watch(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.watchers += n
}

// GetPreferredAllocation answers as the config says.
func (p *Plugin) GetPreferredAllocation(
	_ context.Context, r *pluginapi.PreferredAllocationRequest,
) (*pluginapi.PreferredAllocationResponse, error) {
	out := &pluginapi.PreferredAllocationResponse{}
	for _, c := range r.GetContainerRequests() {
		out.ContainerResponses = append(out.ContainerResponses,
			&pluginapi.ContainerPreferredAllocationResponse{DeviceIDs: p.cfg.Prefer(c)})
	}
	return out, nil
}

// Allocate answers as the config says.
func (p *Plugin) Allocate(ctx context.Context, r *pluginapi.AllocateRequest) (*pluginapi.AllocateResponse, error) {
	ids := r.GetContainerRequests()[0].GetDevicesIds()
	p.mu.Lock()
	p.allocated = append(p.allocated, ids)
	p.mu.Unlock()
	if p.cfg.Allocate != nil {
		return p.cfg.Allocate(ctx, ids)
	}
	return &pluginapi.AllocateResponse{ContainerResponses: []*pluginapi.ContainerAllocateResponse{
		{Envs: map[string]string{"DEVICES": fmt.Sprint(ids)}},
	}}, nil
}

// PreStartContainer answers as the config says.
func (p *Plugin) PreStartContainer(
	_ context.Context, r *pluginapi.PreStartContainerRequest,
) (*pluginapi.PreStartContainerResponse, error) {
	if p.cfg.PreStart == nil {
		return &pluginapi.PreStartContainerResponse{}, nil
	}
	return &pluginapi.PreStartContainerResponse{}, p.cfg.PreStart(r.GetDevicesIds())
}

// Devices returns healthy devices with these ids.
func Devices(ids ...string) []*pluginapi.Device {
	var out []*pluginapi.Device
	for _, id := range ids {
		out = append(out, &pluginapi.Device{ID: id, Health: pluginapi.Healthy})
	}
	return out
}
