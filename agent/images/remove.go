package images

import (
	"context"
	"fmt"
	"slices"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// KeptBy says why an image must stay although no container uses it, and how that ends: an archive
// of the images directory has it, the config names it, or the runtime has it pinned. It is empty if
// the image need not stay.
func (m *Manager) KeptBy(image *runtimeapi.Image) string {
	names := namesOf(image)
	if i := slices.IndexFunc(names, m.cfg.Pins.has); i >= 0 {
		return fmt.Sprintf("pinnedImages in the config names %s", names[i])
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, name := range names {
		if path := m.preload.givenBy(name); path != "" {
			return fmt.Sprintf("the archive %s has it: once that file is deleted, the image is no longer pinned", path)
		}
	}
	if image.GetPinned() {
		return "the runtime has it pinned, by the label io.cri-containerd.pinned of one of its names"
	}
	return ""
}

// Remove removes an image from the runtime, unless a pod has asked for it. It reports whether the
// image was removed. A pod that asks while the removal is under way waits for its end, and then has
// the image pulled again.
func (m *Manager) Remove(ctx context.Context, image *runtimeapi.Image) (bool, error) {
	names := namesOf(image)
	m.mu.Lock()
	for _, w := range m.wants {
		if slices.Contains(names, w.name) || slices.Contains(names, w.pulled) || w.pulled == image.GetId() {
			m.mu.Unlock()
			return false, nil
		}
	}
	gone := &removal{names: names, waiters: wakes{}}
	m.removals[gone] = true
	m.mu.Unlock()

	err := m.deps.Runtime.RemoveImage(ctx, &runtimeapi.ImageSpec{Image: image.GetId()})

	m.mu.Lock()
	delete(m.removals, gone)
	m.mu.Unlock()
	gone.waiters.call(m.deps.Wake)
	if err != nil {
		return false, fmt.Errorf("remove image %s: %w", nameOf(image), err)
	}
	return true, nil
}

// removal is the removal of an image that is under way. The manager's lock guards the waiters.
type removal struct {
	names   []string
	waiters wakes
}

// awaitRemoval makes a pod wait for the end of its image's removal. It reports whether a removal is
// under way. The lock is held.
func (m *Manager) awaitRemoval(a ask) bool {
	for r := range m.removals {
		if slices.Contains(r.names, a.name) {
			r.waiters.add(a.Pod.UID)
			return true
		}
	}
	return false
}

// namesOf returns the full names of an image, with tags and with digests.
func namesOf(image *runtimeapi.Image) []string {
	return slices.Concat(image.GetRepoTags(), image.GetRepoDigests())
}

// nameOf returns a name of an image for people.
func nameOf(image *runtimeapi.Image) string {
	if names := namesOf(image); len(names) > 0 {
		return names[0]
	}
	return image.GetId()
}
