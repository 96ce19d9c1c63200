package csidriver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"

	csiapi "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// Driver is a driver. Dir, Name and Registry must be set before its start.
type Driver struct {
	// Dir is the driver's own directory. Registry is the node's directory for plugins.
	Dir, Registry string
	// Name is the driver's name. NodeID is the node's name in the driver.
	Name, NodeID string
	// Type is the type of plugin as which it registers; empty for a CSI driver.
	Type string
	// Can are the capabilities that it reports for the node.
	Can []csiapi.NodeServiceCapability_RPC_Type
	// Topology is where the node is. MaxVolumes is how many volumes the node can have.
	Topology   map[string]string
	MaxVolumes int64
	// OnCrash is called by the fault Crash, in addition to the failed call.
	OnCrash func()

	// loops are the loop devices of volumes that are block devices. loopsMu guards them.
	loopsMu sync.Mutex
	loops   map[string]*os.File

	mu         sync.Mutex
	server     *grpc.Server
	registered chan *registerapi.RegistrationStatus
	serving    sync.WaitGroup

	csiapi.UnimplementedIdentityServer
	csiapi.UnimplementedNodeServer
	registerapi.UnimplementedRegistrationServer
}

// Start serves until Stop.
func (d *Driver) Start() error {
	if d.NodeID == "" {
		d.NodeID = "id-of-node"
	}
	d.registered = make(chan *registerapi.RegistrationStatus, 16)
	if err := errors.Join(os.MkdirAll(filepath.Join(d.Dir, "volumes"), 0o755),
		os.MkdirAll(d.Registry, 0o750)); err != nil {
		return err
	}
	d.server = grpc.NewServer(grpc.UnaryInterceptor(d.intercept))
	csiapi.RegisterIdentityServer(d.server, d)
	csiapi.RegisterNodeServer(d.server, d)
	registerapi.RegisterRegistrationServer(d.server, d)
	for _, path := range []string{d.endpoint(), d.socket()} { // the registration comes last
		if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
			return err
		}
		l, err := (&net.ListenConfig{}).Listen(context.Background(), "unix", path)
		if err != nil {
			return fmt.Errorf("serve CSI driver %s: %w", d.Name, err)
		}
		d.serving.Go(func() { _ = d.server.Serve(l) })
	}
	return nil
}

// Stop ends the driver and removes its sockets.
func (d *Driver) Stop() {
	d.server.Stop()
	d.serving.Wait()
	d.loopsMu.Lock()
	defer d.loopsMu.Unlock()
	for _, loop := range d.loops {
		_ = loop.Close()
	}
	d.loops = nil
}

func (d *Driver) crash() {
	if d.OnCrash != nil {
		d.OnCrash()
	}
}

func (d *Driver) endpoint() string { return filepath.Join(d.Dir, "csi.sock") }
func (d *Driver) socket() string   { return filepath.Join(d.Registry, d.Name+"-reg.sock") }

// Registered receives what the node reports about the driver's registration.
func (d *Driver) Registered() <-chan *registerapi.RegistrationStatus { return d.registered }

// GetInfo returns the plugin's type and name.
func (d *Driver) GetInfo(context.Context, *registerapi.InfoRequest) (*registerapi.PluginInfo, error) {
	info := &registerapi.PluginInfo{
		Type: d.Type, Name: d.Name, Endpoint: d.endpoint(), SupportedVersions: []string{"1.0.0"},
	}
	if info.Type == "" {
		info.Type = registerapi.CSIPlugin
	}
	return info, nil
}

// NotifyRegistrationStatus receives the node's report about the registration.
func (d *Driver) NotifyRegistrationStatus(
	_ context.Context, status *registerapi.RegistrationStatus,
) (*registerapi.RegistrationStatusResponse, error) {
	select {
	case d.registered <- status:
	default:
	}
	return &registerapi.RegistrationStatusResponse{}, nil
}

// GetPluginInfo returns the driver's name.
func (d *Driver) GetPluginInfo(context.Context, *csiapi.GetPluginInfoRequest) (*csiapi.GetPluginInfoResponse, error) {
	return &csiapi.GetPluginInfoResponse{Name: d.Name, VendorVersion: "test"}, nil
}

// Probe reports that the driver is ready.
func (d *Driver) Probe(context.Context, *csiapi.ProbeRequest) (*csiapi.ProbeResponse, error) {
	return &csiapi.ProbeResponse{}, nil
}

// NodeGetInfo returns the node's name in the driver.
func (d *Driver) NodeGetInfo(context.Context, *csiapi.NodeGetInfoRequest) (*csiapi.NodeGetInfoResponse, error) {
	info := &csiapi.NodeGetInfoResponse{NodeId: d.NodeID, MaxVolumesPerNode: d.MaxVolumes}
	if d.Topology != nil {
		info.AccessibleTopology = &csiapi.Topology{Segments: d.Topology}
	}
	return info, nil
}

// NodeGetCapabilities returns the driver's capabilities.
func (d *Driver) NodeGetCapabilities(
	context.Context, *csiapi.NodeGetCapabilitiesRequest,
) (*csiapi.NodeGetCapabilitiesResponse, error) {
	out := &csiapi.NodeGetCapabilitiesResponse{}
	for _, t := range d.Can {
		out.Capabilities = append(out.Capabilities, &csiapi.NodeServiceCapability{
			Type: &csiapi.NodeServiceCapability_Rpc{Rpc: &csiapi.NodeServiceCapability_RPC{Type: t}},
		})
	}
	return out, nil
}

func (d *Driver) can(t csiapi.NodeServiceCapability_RPC_Type) bool { return slices.Contains(d.Can, t) }
