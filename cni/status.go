package cni

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/invoke"
)

// statusValid is how long a good answer of the plugins' STATUS is believed. A kubelet asks for the
// runtime's status every five seconds, and each question starts a process for each plugin.
const statusValid = 30 * time.Second

// statusCache is the last good answer.
type statusCache struct {
	now func() time.Time

	mu sync.Mutex
	// config is the configuration that was good at the time at.
	config []byte
	at     time.Time
}

// fresh reports whether the plugins have lately said that this configuration works.
func (c *statusCache) fresh(config []byte) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return bytes.Equal(c.config, config) && c.now().Sub(c.at) < statusValid
}

// good keeps that the configuration works.
func (c *statusCache) good(config []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.config, c.at = config, c.now()
}

// Status returns nil if sandboxes can be attached: there is a configuration, its plugins exist, and
// those that can say so (version 1.1.0) say that they are ready. Everything else is
// errdefs.ErrUnavailable, with a text that says what is missing.
func (n *Network) Status(ctx context.Context) error {
	list, err := n.load()
	if err != nil {
		return err
	}
	if err := n.findPlugins(list); err != nil {
		return err
	}
	if n.status.fresh(list.Bytes) {
		return nil
	}
	if err := n.calls.Acquire(ctx, 1); err != nil {
		return err
	}
	defer n.calls.Release(1)
	if err := n.cni.GetStatusNetworkList(ctx, list); err != nil {
		return fmt.Errorf("network %q is not ready: %w: %w", list.Name, err, errdefs.ErrUnavailable)
	}
	n.status.good(list.Bytes)
	return nil
}

// Config returns the configuration that is valid now, as JSON. Its errors have the class
// errdefs.ErrUnavailable.
func (n *Network) Config() ([]byte, error) {
	list, err := n.load()
	if err != nil {
		return nil, err
	}
	return list.Bytes, nil
}

// findPlugins returns an error that names the first plugin that is missing.
func (n *Network) findPlugins(list *libcni.NetworkConfigList) error {
	for _, p := range list.Plugins {
		if _, err := invoke.FindInPath(p.Network.Type, n.cfg.BinDirs); err != nil {
			return fmt.Errorf("network %q: %w: %w", list.Name, missing(p.Network.Type, n.cfg.BinDirs),
				errdefs.ErrUnavailable)
		}
	}
	return nil
}
