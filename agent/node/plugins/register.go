package plugins

import (
	"context"
	"errors"
	"fmt"
	"time"

	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/berthd/berth/internal/retry"
)

// askTimeout bounds one request to a plugin. The value is the kubelet's.
const askTimeout = 10 * time.Second

// backoff is how long the watcher waits after failed registrations of a socket. The first wait is
// short because a socket exists a moment before the plugin listens on it.
var backoff = retry.Backoff{First: 100 * time.Millisecond, Most: time.Minute}

// errNoHandler is the error for a plugin whose type has no handler. Another attempt would not help.
var errNoHandler = errors.New("no handler registered for plugin type")

// register tries to register the plugin of a socket until the plugin is registered, until its type
// has no handler, or until ctx ends.
func (w *Watcher) register(ctx context.Context, s *socket) {
	for failures := 1; ; failures++ {
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
		case failures == 1:
			w.cfg.Logger.Debug("plugin not registered; it is tried again", "socket", s.path, "err", err)
		default:
			w.cfg.Logger.Warn("plugin not registered; it is tried again", "socket", s.path,
				"in", backoff.Delay(failures), "err", err)
		}
		if !backoff.Wait(ctx, failures) {
			return
		}
	}
}

// once asks a plugin which plugin it is, gives it to its handler, and reports the result to the
// plugin.
func (w *Watcher) once(ctx context.Context, path string) (*registered, error) {
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
	p := &registered{Plugin: Plugin{
		Name:     info.GetName(),
		Endpoint: info.GetEndpoint(),
		Versions: info.GetSupportedVersions(),
		Socket:   path,
	}}
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
	_, reportErr := ask(ctx, func(ctx context.Context) (*registerapi.RegistrationStatusResponse, error) {
		return client.NotifyRegistrationStatus(ctx, status)
	})
	switch {
	case err != nil:
		return nil, err
	case reportErr != nil:
		handler.Deregister(p.Plugin)
		return nil, fmt.Errorf("tell plugin %s that it is registered: %w", p.Name, reportErr)
	}
	return p, nil
}

// ask bounds one request to a plugin.
func ask[T any](ctx context.Context, question func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	return question(ctx)
}
