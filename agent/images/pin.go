package images

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Pins are the images that the config wants to keep, whoever removes unused images.
type Pins struct {
	names    []string // full names
	patterns []string
}

// NewPins parses the config's list: images as pods name them, or patterns of full names
// ("registry.example/team/*:v1"), in which * and ? match anything but a slash. The error says which
// entry is wrong.
func NewPins(list []string) (Pins, error) {
	var p Pins
	for i, entry := range list {
		if strings.ContainsAny(entry, "*?[") {
			if _, err := path.Match(entry, ""); err != nil {
				return Pins{}, fmt.Errorf("pinnedImages[%d]: %q: %w", i, entry, err)
			}
			p.patterns = append(p.patterns, entry)
			continue
		}
		name, err := FullName(entry)
		if err != nil {
			return Pins{}, fmt.Errorf("pinnedImages[%d]: %w", i, err)
		}
		p.names = append(p.names, name)
	}
	return p, nil
}

// has reports whether the image with this full name must be kept.
func (p Pins) has(name string) bool {
	return slices.Contains(p.names, name) || slices.ContainsFunc(p.patterns, func(pattern string) bool {
		ok, err := path.Match(pattern, name)
		return ok && err == nil
	})
}

// pinAll pins the images that are on the node already.
func (m *Manager) pinAll(ctx context.Context, list []*runtimeapi.Image) {
	for _, image := range list {
		for _, name := range slices.Concat(image.RepoTags, image.RepoDigests) {
			if !image.Pinned && m.cfg.Pins.has(name) {
				m.pin(ctx, name)
			}
		}
	}
}

// pin asks the runtime to keep the image. If that fails, the image stays unpinned.
func (m *Manager) pin(ctx context.Context, name string) {
	if m.deps.Pinner == nil {
		return
	}
	if err := m.deps.Pinner.Pin(ctx, name); err != nil && !errdefs.IsNotImplemented(err) {
		m.deps.Logger.Warn("Could not pin an image", "image", name, "err", err)
	}
}

// unpin lets the runtime remove the image. An image that is gone needs no more.
func (m *Manager) unpin(ctx context.Context, name string) error {
	if m.deps.Pinner == nil {
		return nil
	}
	err := m.deps.Pinner.Unpin(ctx, name)
	if errdefs.IsNotImplemented(err) || errdefs.IsNotFound(err) {
		return nil
	}
	return err
}
