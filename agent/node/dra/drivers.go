package dra

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"
	draapi "k8s.io/kubelet/pkg/apis/dra/v1"
	"k8s.io/kubelet/pkg/apis/dra/v1beta1"

	"github.com/berthd/berth/agent/node/plugins"
)

// supported are the services of drivers that the manager can call.
var supported = []string{draapi.DRAPluginService, v1beta1.DRAPluginService}

// service is what the manager calls of a driver. The client of v1 implements it, and so does the
// wrapper of v1beta1.
type service interface {
	NodePrepareResources(
		ctx context.Context, in *draapi.NodePrepareResourcesRequest, opts ...grpc.CallOption,
	) (*draapi.NodePrepareResourcesResponse, error)
	NodeUnprepareResources(
		ctx context.Context, in *draapi.NodeUnprepareResourcesRequest, opts ...grpc.CallOption,
	) (*draapi.NodeUnprepareResourcesResponse, error)
}

// plugin is a registered plugin of a driver. A driver has more than one while it is updated.
type plugin struct {
	driver, endpoint, socket string
	conn                     *grpc.ClientConn
	service                  service
	timeout                  time.Duration
	// stop ends the goroutine that watches the plugin; nil if there is none.
	stop context.CancelFunc
	// reports are what the plugin says of its devices; drivers.mu guards them.
	reports map[device]*report
}

func (p *plugin) prepare(
	ctx context.Context, r *draapi.NodePrepareResourcesRequest,
) (*draapi.NodePrepareResourcesResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	return p.service.NodePrepareResources(ctx, r)
}

func (p *plugin) unprepare(
	ctx context.Context, r *draapi.NodeUnprepareResourcesRequest,
) (*draapi.NodeUnprepareResourcesResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	return p.service.NodeUnprepareResources(ctx, r)
}

// connected reports whether the plugin answers.
func (p *plugin) connected() bool { return p.conn.GetState() == connectivity.Ready }

// drivers are the registered plugins, by the driver's name, the last one registered at the end.
type drivers struct {
	loops sync.WaitGroup

	mu     sync.Mutex
	byName map[string][]*plugin
	// answered has the drivers of which it is known what they say of the health of their devices,
	// or that they say nothing.
	answered map[string]bool
	// running is the context of the goroutines, nil while Run does not run.
	running context.Context //nolint:containedctx // the life of Run: plugins outlive their registration
	// absent has the drivers without a connected plugin, each with what ends the wait for it.
	absent map[string]context.CancelFunc
}

// Register connects to a driver's plugin that package plugins has found.
func (m *Manager) Register(_ context.Context, found plugins.Plugin) error {
	p, err := m.newPlugin(found)
	if err != nil {
		return err
	}
	if err := m.drivers.add(p); err != nil {
		return errors.Join(err, p.conn.Close())
	}
	p.conn.Connect()
	m.drivers.mu.Lock()
	defer m.drivers.mu.Unlock()
	m.watch(p)
	return nil
}

// Deregister ends the connection to a plugin whose socket is gone.
func (m *Manager) Deregister(found plugins.Plugin) {
	if p := m.drivers.remove(found); p != nil {
		_ = p.conn.Close() // nothing is written through it
		m.noteDriver(p.driver)
	}
}

// newPlugin returns a plugin with a connection that is made at its first use. The words of the
// errors are the kubelet's.
func (m *Manager) newPlugin(found plugins.Plugin) (*plugin, error) {
	at := slices.IndexFunc(found.Versions, func(v string) bool { return slices.Contains(supported, v) })
	if at < 0 {
		return nil, fmt.Errorf("invalid supported gRPC versions of DRA driver plugin %s at endpoint %s: none of services "+
			"supported by the plugin (%q) are supported by the kubelet (%q)", found.Name, found.Endpoint, found.Versions,
			supported)
	}
	conn, err := plugins.Dial(found.Endpoint, grpc.WithIdleTimeout(0), grpc.WithUnaryInterceptor(m.measured(found.Name)))
	if err != nil {
		return nil, err
	}
	p := &plugin{
		driver: found.Name, endpoint: found.Endpoint, socket: found.Socket, conn: conn,
		timeout: m.cfg.CallTimeout, service: draapi.NewDRAPluginClient(conn),
	}
	if found.Versions[at] == v1beta1.DRAPluginService {
		p.service = v1beta1.V1Beta1ClientWrapper{DRAPluginClient: v1beta1.NewDRAPluginClient(conn)}
	}
	return p, nil
}

// measured measures the requests to a driver.
func (m *Manager) measured(driver string) grpc.UnaryClientInterceptor {
	return func(
		ctx context.Context, method string, request, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker,
		opts ...grpc.CallOption,
	) error {
		began := time.Now()
		err := invoke(ctx, method, request, reply, conn, opts...)
		m.deps.Metrics.DRADriverAsked(driver, method, status.Code(err).String(), time.Since(began))
		return err
	}
}

// add adds a plugin. Two plugins of a driver have two endpoints.
func (d *drivers) add(p *plugin) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if slices.ContainsFunc(d.byName[p.driver], func(other *plugin) bool { return other.endpoint == p.endpoint }) {
		return fmt.Errorf("endpoint %s already registered for DRA driver plugin %s", p.endpoint, p.driver)
	}
	if d.byName == nil {
		d.byName = map[string][]*plugin{}
	}
	d.byName[p.driver] = append(d.byName[p.driver], p)
	return nil
}

// remove removes the plugin that registered at a socket, and returns it.
func (d *drivers) remove(found plugins.Plugin) *plugin {
	d.mu.Lock()
	defer d.mu.Unlock()
	list := d.byName[found.Name]
	at := slices.IndexFunc(list, func(p *plugin) bool {
		return p.endpoint == found.Endpoint && p.socket == found.Socket
	})
	if at < 0 {
		return nil
	}
	p := list[at]
	if p.stop != nil {
		p.stop()
	}
	if d.byName[found.Name] = slices.Delete(list, at, at+1); len(list) == 1 {
		delete(d.byName, found.Name)
	}
	return p
}

// get returns the plugin of a driver that was registered last, and that is connected if any is.
func (d *drivers) get(driver string) (*plugin, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	list := d.byName[driver]
	if len(list) == 0 {
		return nil, fmt.Errorf("DRA driver %s is not registered", driver)
	}
	for _, p := range slices.Backward(list) {
		if p.connected() {
			return p, nil
		}
	}
	return list[len(list)-1], nil
}
