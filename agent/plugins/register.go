package plugins

import (
	"context"
	"errors"
	"fmt"
	"time"

	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/berthd/berth/agent/tasks"
)

const (
	// askTimeout is how long one question to a plugin may take, the kubelet's.
	askTimeout = 10 * time.Second
	// firstDelay and lastDelay bound how long is waited after a failure, twice as long after each. A socket is there a moment before somebody listens on it.
	firstDelay = 100 * time.Millisecond
	lastDelay  = time.Minute
)

// errNoHandler means that asking again does not help.
var errNoHandler = errors.New("no handler registered for plugin type")

// register asks who is behind a socket until it is registered, or turned away for good, or ctx ends.
func (w *Watcher) register(ctx context.Context, s *socket) {
	for delay := firstDelay; ; delay = min(2*delay, lastDelay) {
		p, err := w.once(ctx, s.path)
		switch {
		case err == nil:
			s.plugin = p
			w.cfg.Logger.Info("plugin registered", "plugin", p.Name, "endpoint", p.Endpoint, "socket", s.path)
			return
		case ctx.Err() != nil:
			return
		case errors.Is(err, errNoHandler):
			w.cfg.Logger.Warn("plugin turned away", "socket", s.path, "err", err)
			return
		case delay == firstDelay:
			w.cfg.Logger.Debug("plugin not registered; it is tried again", "socket", s.path, "err", err)
		default:
			w.cfg.Logger.Warn("plugin not registered; it is tried again", "socket", s.path, "in", delay, "err", err)
		}
		if !tasks.Sleep(ctx, delay) {
			return
		}
	}
}

// once asks a plugin who it is, hands it to its handler, and tells it what came of that.
func (w *Watcher) once(ctx context.Context, path string) (*taken, error) {
	conn, err := Dial(path)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	client := registerapi.NewRegistrationClient(conn)
	info, err := ask(ctx, func(ctx context.Context) (*registerapi.PluginInfo, error) {
		return client.GetInfo(ctx, &registerapi.InfoRequest{})
	})
	if err != nil {
		return nil, fmt.Errorf("ask the plugin who it is: %w", err)
	}
	p := &taken{Plugin: Plugin{Name: info.GetName(), Endpoint: info.GetEndpoint(), Versions: info.GetSupportedVersions(), Socket: path}}
	if p.Endpoint == "" {
		p.Endpoint = path
	}
	status := &registerapi.RegistrationStatus{PluginRegistered: true}
	handler, known := w.cfg.Handlers[info.GetType()]
	if known {
		p.handler = handler
		err = handler.Register(ctx, p.Plugin)
	} else {
		err = fmt.Errorf("%w: %s at socket %s", errNoHandler, info.GetType(), path)
	}
	if err != nil {
		status.PluginRegistered, status.Error = false, err.Error()
	}
	_, told := ask(ctx, func(ctx context.Context) (*registerapi.RegistrationStatusResponse, error) {
		return client.NotifyRegistrationStatus(ctx, status)
	})
	switch {
	case err != nil:
		return nil, err
	case told != nil:
		handler.Deregister(p.Plugin)
		return nil, fmt.Errorf("tell plugin %s that it is registered: %w", p.Name, told)
	}
	return p, nil
}

// ask bounds one question to a plugin.
func ask[T any](ctx context.Context, question func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	return question(ctx)
}
