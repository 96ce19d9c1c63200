package devices

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"k8s.io/apimachinery/pkg/types"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/berthd/berth/agent/node/plugins"
)

// connectTimeout bounds the connection to a plugin and each short question to it. preStartTimeout
// bounds the preparation of a container's devices. Both are the kubelet's.
const (
	connectTimeout  = 10 * time.Second
	preStartTimeout = pluginapi.KubeletPreStartContainerRPCTimeoutInSecs * time.Second
)

// plugin is a connected plugin.
type plugin struct {
	resource, socket string
	conn             *grpc.ClientConn
	client           pluginapi.DevicePluginClient
	cancel           context.CancelFunc
}

// connect connects to a plugin and begins to watch its devices. A plugin that registers again for
// its resource takes the place of the one before.
func (m *Manager) connect(ctx context.Context, name, socket string) error {
	conn, err := plugins.Dial(socket)
	if err != nil {
		return err
	}
	p := &plugin{resource: name, socket: socket, conn: conn, client: pluginapi.NewDevicePluginClient(conn)}
	asked, done := context.WithTimeout(ctx, connectTimeout)
	defer done()
	options, err := p.client.GetDevicePluginOptions(asked, &pluginapi.Empty{}, grpc.WaitForReady(true))
	if err != nil {
		return errors.Join(fmt.Errorf("failed to get device plugin options: %w", err), conn.Close())
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.running == nil || m.running.Err() != nil {
		return errors.Join(errors.New("the agent ends"), conn.Close())
	}
	r := m.resources[name]
	if r == nil {
		r = &resource{devices: map[string]device{}}
		m.resources[name] = r
	}
	if r.plugin != nil {
		m.log.Info("device plugin is replaced by one that registers for the same resource", "resource", name,
			"socket", r.plugin.socket, "by", socket)
		r.plugin.cancel()
	}
	var watching context.Context
	watching, p.cancel = context.WithCancel(m.running)
	r.plugin, r.options, r.absent = p, options, time.Time{}
	m.log.Info("device plugin registered", "resource", name, "socket", socket)
	m.plugins.Go(func() { m.watch(watching, p) })
	return nil
}

// watch takes notice of the plugin's devices until its connection ends.
func (m *Manager) watch(ctx context.Context, p *plugin) {
	err := m.receive(ctx, p)
	p.cancel()
	_ = p.conn.Close() // nothing is written through it
	if m.disconnected(p) {
		m.log.Warn("device plugin is gone: its devices count as unhealthy", "resource", p.resource, "err", err)
		m.saved()
		m.deps.Changed()
		m.recheck.Notify()
	}
}

func (m *Manager) receive(ctx context.Context, p *plugin) error {
	stream, err := p.client.ListAndWatch(ctx, &pluginapi.Empty{})
	if err != nil {
		return err
	}
	for {
		response, err := stream.Recv()
		if err != nil {
			return err
		}
		m.listed(p, response.GetDevices())
	}
}

// listed takes over what a plugin says about its devices.
func (m *Manager) listed(p *plugin, list []*pluginapi.Device) {
	devices := map[string]device{}
	for _, d := range list {
		if d.GetID() == "" {
			m.log.Warn("device without an id left out", "resource", p.resource)
			continue
		}
		if _, again := devices[d.GetID()]; again {
			m.log.Warn("device is listed twice: what the plugin says last counts", "resource", p.resource, "device", d.GetID())
		}
		var nodes []int64
		for _, n := range d.GetTopology().GetNodes() {
			nodes = append(nodes, n.GetID())
		}
		devices[d.GetID()] = device{healthy: d.GetHealth() == pluginapi.Healthy, nodes: nodes}
	}
	affected, current := m.replace(p, devices)
	if !current {
		return
	}
	m.log.Debug("devices listed", "resource", p.resource, "devices", len(devices))
	m.saved()
	m.deps.Changed()
	for _, uid := range affected {
		m.deps.Affected(uid)
	}
}

// replace replaces the devices of a plugin, and returns the pods whose devices have changed.
// current is false if another plugin has taken the place of this one.
func (m *Manager) replace(p *plugin, devices map[string]device) (affected []types.UID, current bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.resources[p.resource]
	if r.plugin != p {
		return nil, false
	}
	before := r.devices
	r.devices = devices
	return m.holding(p.resource, func(id string) bool {
		was, had := before[id]
		is, has := devices[id]
		return had != has || was.healthy != is.healthy
	}), true
}

// holding returns the pods that have a device of a resource for which changed returns true; m.mu is
// held.
func (m *Manager) holding(name string, changed func(id string) bool) []types.UID {
	var out []types.UID
	for uid, containers := range m.pods {
		if holds(containers, name, changed) {
			out = append(out, uid)
		}
	}
	return out
}

func holds(containers map[string]map[string]*allocation, name string, changed func(id string) bool) bool {
	for _, resources := range containers {
		if a := resources[name]; a != nil {
			for _, id := range a.list() {
				if changed(id) {
					return true
				}
			}
		}
	}
	return false
}

// disconnected makes the plugin's devices unhealthy. It reports false if another plugin has taken
// the place of this one, or if the agent ends.
func (m *Manager) disconnected(p *plugin) bool {
	m.mu.Lock()
	r := m.resources[p.resource]
	if r.plugin != p || m.running == nil {
		m.mu.Unlock()
		return false
	}
	r.plugin, r.absent = nil, time.Now()
	for id, d := range r.devices {
		d.healthy = false
		r.devices[id] = d
	}
	affected := m.holding(p.resource, func(string) bool { return true })
	m.mu.Unlock()
	for _, uid := range affected {
		m.deps.Affected(uid)
	}
	return true
}
