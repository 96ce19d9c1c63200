package devices

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	v1 "k8s.io/api/core/v1"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	"k8s.io/kubernetes/pkg/apis/core/v1/helper"

	"github.com/berthd/berth/agent/node/devices/checkpoint"
	"github.com/berthd/berth/agent/node/plugins"
	"github.com/berthd/berth/internal/retry"
)

// socketName is the name of the socket at which plugins register.
const socketName = "kubelet.sock"

// Files returns the paths of the files that a manager makes in its directory.
func Files(dir string) []string {
	return []string{filepath.Join(dir, checkpoint.File), filepath.Join(dir, socketName)}
}

// listening is how long the manager waits after it could not make its socket.
var listening = retry.Backoff{First: time.Second, Most: time.Minute}

// Run serves the plugins until ctx ends, and joins them. Run never gives up: while the socket
// cannot be made, plugins can still register as those of package plugins.
func (m *Manager) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer m.plugins.Wait()
	defer func() {
		m.mu.Lock()
		m.running = nil
		m.mu.Unlock()
		cancel()
	}()
	m.mu.Lock()
	m.running = ctx
	m.mu.Unlock()
	var serving sync.WaitGroup
	defer serving.Wait()
	serving.Go(func() { m.serve(ctx) })
	for {
		next, given := m.giveUp(time.Now())
		if given {
			m.saved()
			m.deps.Changed()
		}
		if !m.await(ctx, next) {
			return nil
		}
	}
}

// await waits until a time, if there is one, or until a plugin comes or goes. It returns false if
// ctx has ended.
func (m *Manager) await(ctx context.Context, until time.Time) bool {
	var due <-chan time.Time
	if !until.IsZero() {
		timer := time.NewTimer(time.Until(until))
		defer timer.Stop()
		due = timer.C
	}
	select {
	case <-ctx.Done():
		return false
	case <-due:
	case <-m.recheck:
	}
	return true
}

// serve serves the socket at which plugins register, until ctx ends.
func (m *Manager) serve(ctx context.Context) {
	path := filepath.Join(m.cfg.Dir, socketName)
	for failures := 1; ; failures++ {
		err := m.serveAt(ctx, path)
		if ctx.Err() != nil {
			return
		}
		m.noteServing(err)
		m.log.Error("device plugins cannot register; this is tried again", "socket", path,
			"in", listening.Delay(failures), "err", err)
		if failures == 1 {
			m.deps.Event(v1.EventTypeWarning, "DevicePluginsNotServed", "device plugins cannot register: "+err.Error())
		}
		if !listening.Wait(ctx, failures) {
			return
		}
	}
}

func (m *Manager) serveAt(ctx context.Context, path string) error {
	if err := m.clean(); err != nil {
		return err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "unix", path)
	if err != nil {
		return fmt.Errorf("listening for device plugins: %w", err)
	}
	m.noteServing(nil)
	server := grpc.NewServer()
	pluginapi.RegisterRegistrationServer(server, registration{m: m})
	defer context.AfterFunc(ctx, server.Stop)()
	if err := server.Serve(listener); err != nil {
		return fmt.Errorf("serving device plugins: %w", err)
	}
	return nil
}

// noteServing notes why device plugins cannot register; nil if they can.
func (m *Manager) noteServing(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.unserved = err
}

// Served returns an error while device plugins cannot register, because the socket is not served.
func (m *Manager) Served() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.unserved != nil {
		return fmt.Errorf("device plugins cannot register: %w", m.unserved)
	}
	return nil
}

// clean makes the directory and removes the sockets in it, as a kubelet does: plugins watch the
// directory, and register again when the agent has made its own socket there.
func (m *Manager) clean() error {
	if err := os.MkdirAll(m.cfg.Dir, 0o750); err != nil {
		return fmt.Errorf("making the directory of device plugins: %w", err)
	}
	entries, err := os.ReadDir(m.cfg.Dir)
	if err != nil {
		return fmt.Errorf("looking for sockets of device plugins: %w", err)
	}
	for _, e := range entries {
		if e.Type() != fs.ModeSocket {
			continue
		}
		if err := os.Remove(filepath.Join(m.cfg.Dir, e.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("removing a socket of an earlier run: %w", err)
		}
	}
	return nil
}

// registration is the service at the socket.
type registration struct {
	pluginapi.UnimplementedRegistrationServer

	m *Manager
}

// Register connects to the plugin that asks for it.
func (s registration) Register(ctx context.Context, r *pluginapi.RegisterRequest) (*pluginapi.Empty, error) {
	s.m.deps.Metrics.DevicePluginRegistered(r.GetResourceName())
	err := s.m.register(ctx, r)
	if err != nil {
		s.m.log.Warn("device plugin turned away", "resource", r.GetResourceName(), "endpoint", r.GetEndpoint(),
			"err", err)
	}
	return &pluginapi.Empty{}, err
}

func (m *Manager) register(ctx context.Context, r *pluginapi.RegisterRequest) error {
	if err := accepted(r.GetResourceName(), r.GetVersion()); err != nil {
		return err
	}
	// the plugin's socket is in the directory: nobody makes the agent speak to another service
	if !filepath.IsLocal(r.GetEndpoint()) {
		return fmt.Errorf("the endpoint %q of the device plugin is no path in %s", r.GetEndpoint(), m.cfg.Dir)
	}
	return m.connect(ctx, r.GetResourceName(), filepath.Join(m.cfg.Dir, r.GetEndpoint()))
}

// accepted checks what a plugin says of itself. The words are the kubelet's.
func accepted(name string, versions ...string) error {
	if !slices.ContainsFunc(versions, func(v string) bool { return slices.Contains(pluginapi.SupportedVersions[:], v) }) {
		return fmt.Errorf("requested API version %q is not supported by kubelet. Supported version is %q", versions,
			pluginapi.SupportedVersions)
	}
	if !helper.IsExtendedResourceName(v1.ResourceName(name)) {
		return fmt.Errorf("the ResourceName %q is invalid", name)
	}
	return nil
}

// Register connects to a plugin that package plugins has found.
func (m *Manager) Register(ctx context.Context, p plugins.Plugin) error {
	m.deps.Metrics.DevicePluginRegistered(p.Name)
	if err := accepted(p.Name, p.Versions...); err != nil {
		return err
	}
	return m.connect(ctx, p.Name, p.Endpoint)
}

// Deregister ends the connection to a plugin whose socket is gone.
func (m *Manager) Deregister(p plugins.Plugin) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if r := m.resources[p.Name]; r != nil && r.plugin != nil && r.plugin.socket == p.Endpoint {
		r.plugin.cancel()
	}
}
