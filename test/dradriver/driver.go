// Package dradriver is a DRA driver for tests: it prepares claims as a test says.
//
// Purpose: the other side of the API for DRA drivers (v1 and v1beta1), with the faults that drivers
// have.
//
// Truth owned: the requests that the driver got.
//
// Concurrency: a [Driver] is safe for concurrent use.
package dradriver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"google.golang.org/grpc"
	healthapi "k8s.io/kubelet/pkg/apis/dra-health/v1alpha1"
	draapi "k8s.io/kubelet/pkg/apis/dra/v1"
	"k8s.io/kubelet/pkg/apis/dra/v1beta1"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// Config says what a driver is.
type Config struct {
	// Name is the driver's name. Endpoint is the path of the socket on which it serves.
	Name, Endpoint string
	// Registry is the directory in which the driver registers; empty if it does not.
	Registry string
	// Old makes it a driver of the API v1beta1 alone.
	Old bool
	// Prepare prepares one claim, and Unprepare undoes that. By default Prepare gives the device
	// "NAME/device=UID" of the claim's UID.
	Prepare   func(ctx context.Context, claim *draapi.Claim) ([]*draapi.Device, error)
	Unprepare func(ctx context.Context, claim *draapi.Claim) error
	// Health says that the driver has the service for the health of devices; see [Driver.Say].
	Health bool
	// Alter changes the answers before they are sent; nil if nothing changes them.
	Alter func(map[string]*draapi.NodePrepareResourceResponse)
}

// Driver is a driver that serves its socket. Make it with [Start].
type Driver struct {
	draapi.UnimplementedDRAPluginServer
	healthapi.UnimplementedDRAResourceHealthServer
	registerapi.UnimplementedRegistrationServer

	cfg     Config
	server  *grpc.Server
	serving sync.WaitGroup

	mu    sync.Mutex
	calls []string
	// health is what the driver says of its devices. changed is closed when it says something else.
	health  []*healthapi.DeviceHealth
	changed chan struct{}
}

// Start serves a driver.
func Start(cfg Config) (*Driver, error) {
	d := &Driver{cfg: cfg, server: grpc.NewServer(), changed: make(chan struct{})}
	if cfg.Health {
		healthapi.RegisterDRAResourceHealthServer(d.server, d)
	}
	if cfg.Prepare == nil {
		d.cfg.Prepare = func(_ context.Context, claim *draapi.Claim) ([]*draapi.Device, error) {
			return []*draapi.Device{{
				PoolName: "pool", DeviceName: "device", CdiDeviceIds: []string{cfg.Name + "/device=" + claim.GetUid()},
			}}, nil
		}
	}
	if cfg.Unprepare == nil {
		d.cfg.Unprepare = func(context.Context, *draapi.Claim) error { return nil }
	}
	if cfg.Old {
		v1beta1.RegisterDRAPluginServer(d.server, v1beta1.V1ServerWrapper{DRAPluginServer: d})
	} else {
		draapi.RegisterDRAPluginServer(d.server, d)
	}
	sockets := []string{cfg.Endpoint}
	if cfg.Registry != "" { // the registration comes last
		registerapi.RegisterRegistrationServer(d.server, d)
		sockets = append(sockets, filepath.Join(cfg.Registry, cfg.Name+"-reg.sock"))
	}
	for _, path := range sockets {
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, fmt.Errorf("serving DRA driver %s: %w", cfg.Name, err)
		}
		l, err := (&net.ListenConfig{}).Listen(context.Background(), "unix", path)
		if err != nil {
			d.Stop()
			return nil, fmt.Errorf("serving DRA driver %s: %w", cfg.Name, err)
		}
		d.serving.Go(func() { _ = d.server.Serve(l) }) // it ends with Stop
	}
	return d, nil
}

// Stop ends the driver, as its death would, and removes its sockets.
func (d *Driver) Stop() {
	d.server.Stop()
	d.serving.Wait()
}

// Calls returns what the driver was asked for, in order: "prepare CLAIM" and "unprepare CLAIM".
func (d *Driver) Calls() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.calls)
}

func (d *Driver) called(method string, claim *draapi.Claim) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.calls = append(d.calls, method+" "+claim.GetName())
}

// Say says something of the health of devices, to everybody who listens and who will.
func (d *Driver) Say(health ...*healthapi.DeviceHealth) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.health = health
	close(d.changed)
	d.changed = make(chan struct{})
}

// NodeWatchResources says what was last said of the health of devices, and what follows.
func (d *Driver) NodeWatchResources(
	_ *healthapi.NodeWatchResourcesRequest, stream grpc.ServerStreamingServer[healthapi.NodeWatchResourcesResponse],
) error {
	for {
		d.mu.Lock()
		health, changed := d.health, d.changed
		d.mu.Unlock()
		if len(health) > 0 {
			if err := stream.Send(&healthapi.NodeWatchResourcesResponse{Devices: health}); err != nil {
				return err
			}
		}
		select {
		case <-stream.Context().Done():
			return nil
		case <-changed:
		}
	}
}

// Versions returns the versions of the API that the driver serves.
func (d *Driver) Versions() []string {
	if d.cfg.Old {
		return []string{v1beta1.DRAPluginService}
	}
	return []string{draapi.DRAPluginService}
}

// GetInfo returns the plugin's type and name.
func (d *Driver) GetInfo(context.Context, *registerapi.InfoRequest) (*registerapi.PluginInfo, error) {
	return &registerapi.PluginInfo{
		Type: registerapi.DRAPlugin, Name: d.cfg.Name, Endpoint: d.cfg.Endpoint, SupportedVersions: d.Versions(),
	}, nil
}

// NotifyRegistrationStatus receives the node's report about the registration.
func (d *Driver) NotifyRegistrationStatus(
	context.Context, *registerapi.RegistrationStatus,
) (*registerapi.RegistrationStatusResponse, error) {
	return &registerapi.RegistrationStatusResponse{}, nil
}

// NodePrepareResources prepares claims.
func (d *Driver) NodePrepareResources(
	ctx context.Context, r *draapi.NodePrepareResourcesRequest,
) (*draapi.NodePrepareResourcesResponse, error) {
	answers := map[string]*draapi.NodePrepareResourceResponse{}
	for _, claim := range r.GetClaims() {
		d.called("prepare", claim)
		devices, err := d.cfg.Prepare(ctx, claim)
		answers[claim.GetUid()] = &draapi.NodePrepareResourceResponse{Devices: devices, Error: text(err)}
	}
	if d.cfg.Alter != nil {
		d.cfg.Alter(answers)
	}
	return &draapi.NodePrepareResourcesResponse{Claims: answers}, nil
}

// NodeUnprepareResources gives claims back.
func (d *Driver) NodeUnprepareResources(
	ctx context.Context, r *draapi.NodeUnprepareResourcesRequest,
) (*draapi.NodeUnprepareResourcesResponse, error) {
	answers := map[string]*draapi.NodeUnprepareResourceResponse{}
	for _, claim := range r.GetClaims() {
		d.called("unprepare", claim)
		answers[claim.GetUid()] = &draapi.NodeUnprepareResourceResponse{Error: text(d.cfg.Unprepare(ctx, claim))}
	}
	return &draapi.NodeUnprepareResourcesResponse{Claims: answers}, nil
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
