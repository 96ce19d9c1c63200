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

// Pins are the images that the config wants kept, whoever removes unused ones.
type Pins struct {
	names    []string // full
	patterns []string
}

// NewPins reads the config's list: images as pods name them, or patterns of full names ("registry.example/team/*:v1") in which * and ? stand for anything but
// a slash. The error says which entry is wrong.
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

// has says whether the image of this full name is to be kept.
func (p Pins) has(name string) bool {
	return slices.Contains(p.names, name) || slices.ContainsFunc(p.patterns, func(pattern string) bool {
		ok, err := path.Match(pattern, name)
		return ok && err == nil
	})
}

// pinAll pins the images that are there already.
func (m *Manager) pinAll(ctx context.Context, list []*runtimeapi.Image) {
	for _, image := range list {
		for _, name := range slices.Concat(image.RepoTags, image.RepoDigests) {
			if !image.Pinned && m.cfg.Pins.has(name) {
				m.pin(ctx, name)
			}
		}
	}
}

// pin has the runtime keep the image. One that cannot keeps it no worse than others.
func (m *Manager) pin(ctx context.Context, name string) {
	if m.deps.Pin == nil {
		return
	}
	if err := m.deps.Pin(ctx, name); err != nil && !errdefs.IsNotImplemented(err) {
		m.deps.Logger.Warn("Could not pin an image", "image", name, "err", err)
	}
}
