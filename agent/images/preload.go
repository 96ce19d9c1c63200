package images

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const (
	// preloadRetry is the pause after a preload that failed because the runtime did not answer.
	preloadRetry = time.Second
	// scanPeriod is how often the images directory is looked at. The kernel's notices would cost an
	// instance of inotify, of which a machine has few.
	scanPeriod = 10 * time.Second
)

// preload is what is known of the images directory. The manager's lock guards it.
type preload struct {
	pending  bool // the first scan of the directory has not ended: a missing image may come from it
	waiters  map[types.UID]bool
	arriving arriving
	archives map[string]*Archive // by path
	// former are names of images that an archive gave once, and may give no more: their pins are to
	// be removed.
	former []string
	loaded bool // the state file was read
}

// Archives returns the files of the images directory and the results of their imports, by path.
func (m *Manager) Archives() []Archive {
	m.mu.Lock()
	defer m.mu.Unlock()
	list := make([]Archive, 0, len(m.preload.archives))
	for _, a := range m.preload.archives {
		list = append(list, *a)
	}
	for path, a := range m.preload.arriving {
		if m.preload.archives[path] == nil {
			list = append(list, a.Archive)
		}
	}
	slices.SortFunc(list, func(a, b Archive) int { return strings.Compare(a.Path, b.Path) })
	return list
}

// givenBy returns the path of an archive that gives an image with this name; empty if none does.
// The lock is held.
func (p *preload) givenBy(name string) string {
	found := ""
	for path, a := range p.archives {
		if slices.Contains(a.Images, name) && (found == "" || path < found) {
			found = path
		}
	}
	return found
}

// rescan requests another scan of the images directory. The lock may be held.
func (m *Manager) rescan() {
	if !m.preloading() {
		return
	}
	m.scan.Notify()
}

// preloading reports whether there is a directory, and a runtime that may import.
func (m *Manager) preloading() bool { return m.cfg.ImagesDir != "" && m.deps.Importer != nil }

// preloads makes the first preload, repeats it while it fails or an archive is being written, and
// makes further ones on request and when the directory has changed, until ctx ends.
func (m *Manager) preloads(ctx context.Context) error {
	if !m.preloading() {
		<-ctx.Done()
		return nil
	}
	// an import that hangs must not stop pods from pulling
	late := time.AfterFunc(m.cfg.StallTimeout, m.preloaded)
	defer late.Stop()
	for next := settle; ; {
		err := m.Preload(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			m.deps.Logger.Warn("Could not import all image archives", "dir", m.cfg.ImagesDir, "err", err)
		}
		pause := scanPeriod
		switch {
		case errdefs.IsUnavailable(err):
			pause = preloadRetry
		case m.unsettled():
			pause, next = next, min(2*next, scanPeriod)
		default:
			next = settle
			m.preloaded()
		}
		if !m.awaitScan(ctx, pause) {
			return nil
		}
	}
}

// awaitScan waits until another preload is due: on request, or when the directory is not as the
// last preload has left it. It looks at the directory after each pause. It returns false if ctx
// ends.
func (m *Manager) awaitScan(ctx context.Context, pause time.Duration) bool {
	tick := time.NewTicker(pause)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return false
		case <-m.scan:
			return true
		case <-tick.C:
			if pause != scanPeriod || m.changed() {
				return true
			}
		}
	}
}

// unsettled reports whether an archive waits for the end of its writing.
func (m *Manager) unsettled() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.preload.arriving) > 0
}

// changed reports whether the directory or the pins are not as they should be.
func (m *Manager) changed() bool {
	files, err := archivesIn(m.cfg.ImagesDir)
	if err != nil {
		return true // Preload says why
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(files) != len(m.preload.archives) || len(m.preload.former) > 0 ||
		slices.ContainsFunc(files, func(a Archive) bool { return !a.sameFile(m.preload.archives[a.Path]) })
}

// preloaded ends the time in which pods wait for images from the directory.
func (m *Manager) preloaded() {
	m.mu.Lock()
	m.preload.pending = false
	wake := m.takeWaiters()
	m.mu.Unlock()
	wake.call(m.deps.Wake)
}

// takeWaiters returns the pods that wait for an import, and empties the set. The lock is held.
func (m *Manager) takeWaiters() wakes {
	wake := wakes(m.preload.waiters)
	m.preload.waiters = make(map[types.UID]bool)
	return wake
}

// Preload imports the archives of the images directory that are new or changed, or whose images
// were removed. It leaves out those that are still being written. It imports one after another, the
// newest last, so that the newest has a name that several give, and returns all errors, joined. An
// archive that cannot be imported does not stop the others; it is tried again if its file changes.
// Then Preload removes the pins of images that no archive gives any more. A runtime that is not
// available (errdefs.IsUnavailable) stops all. [Manager.Run] calls Preload. Two calls at the same
// time may import the same file twice, which does no harm.
func (m *Manager) Preload(ctx context.Context) error {
	if !m.preloading() {
		return nil
	}
	m.loadState()
	files, err := archivesIn(m.cfg.ImagesDir)
	if err != nil {
		return fmt.Errorf("read the images directory: %w", err)
	}
	m.dropArchives(files)
	var errs []error
	taken := map[string]bool{} // the names that were imported just now
	for _, file := range files {
		known, err := m.imported(ctx, file, taken)
		if err == nil && !known && m.settled(file) {
			err = m.importFile(ctx, file, taken)
		}
		if err != nil {
			errs = append(errs, err)
		}
		if ctx.Err() != nil || errdefs.IsUnavailable(err) || errdefs.IsNotImplemented(err) {
			return errors.Join(errs...)
		}
	}
	return errors.Join(append(errs, m.unpinFormer(ctx))...)
}

// settled reports whether the file may be imported now.
func (m *Manager) settled(file Archive) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.preload.arriving.settled(file, time.Now())
}

// imported reports whether the file needs no import: it was imported, its images still exist, and
// no older archive has taken one of their names just now; or it failed and has not changed.
func (m *Manager) imported(ctx context.Context, file Archive, taken map[string]bool) (bool, error) {
	m.mu.Lock()
	last := m.preload.archives[file.Path]
	m.mu.Unlock()
	if !file.sameFile(last) {
		return false, nil
	}
	if last.Error != "" {
		return true, nil
	}
	for _, name := range last.Images {
		if taken[name] {
			return false, nil
		}
		image, err := m.deps.Runtime.ImageStatus(ctx, &runtimeapi.ImageSpec{Image: name})
		if err != nil {
			return false, fmt.Errorf("look for image %s of %s: %w", name, file.Path, err)
		}
		if image == nil {
			return false, nil
		}
	}
	return true, nil
}

// importFile imports one archive, records the result, adds its images to taken, and wakes the pods
// that wait for one of them.
func (m *Manager) importFile(ctx context.Context, file Archive, taken map[string]bool) error {
	start := time.Now()
	limited, cancel := context.WithTimeout(ctx, m.cfg.PullTimeout)
	defer cancel()
	names, err := m.deps.Importer.Import(limited, file.Path)
	if ctx.Err() != nil || errdefs.IsUnavailable(err) || errdefs.IsNotImplemented(err) {
		return err // the error says nothing about the file
	}
	file.Images = names
	if err != nil {
		file.Error = err.Error()
	}
	m.mu.Lock()
	wake := wakes{}
	last := m.preload.archives[file.Path]
	if err == nil {
		wake = m.arrived(names)
		if last != nil {
			m.preload.former = append(m.preload.former, last.Images...)
		}
	} else if last != nil {
		file.Images = last.Images // they stay until an import succeeds
	}
	m.preload.archives[file.Path] = &file
	m.mu.Unlock()
	m.saveState()
	if err == nil {
		for _, name := range names {
			taken[name] = true
		}
		m.deps.Logger.Info("Imported images", "archive", file.Path, "images", names, "took", time.Since(start))
		m.deps.Event(v1.EventTypeNormal, eventImported,
			fmt.Sprintf("Imported %s from %s", strings.Join(names, ", "), file.Path))
	} else {
		m.deps.Event(v1.EventTypeWarning, eventImportFailed,
			fmt.Sprintf("Failed to import images from %s: %v", file.Path, err))
	}
	wake.call(m.deps.Wake)
	return err
}

// arrived notes that images came, and returns the pods that may wait for them. The lock is held.
func (m *Manager) arrived(names []string) wakes {
	m.arrivals++
	wake := m.takeWaiters()
	for key := range m.backoffs {
		if slices.Contains(names, key.name) {
			wake.add(key.pod)
		}
	}
	for key, w := range m.wants {
		if slices.Contains(names, w.name) {
			wake.add(key.pod)
		}
	}
	return wake
}

// dropArchives drops the records of files that no longer exist. Their images are former ones now.
func (m *Manager) dropArchives(files []Archive) {
	m.mu.Lock()
	dropped := false
	gone := func(path string) bool {
		return !slices.ContainsFunc(files, func(a Archive) bool { return a.Path == path })
	}
	for path, a := range m.preload.archives {
		if gone(path) {
			m.preload.former = append(m.preload.former, a.Images...)
			delete(m.preload.archives, path)
			dropped = true
		}
	}
	for path := range m.preload.arriving {
		if gone(path) {
			delete(m.preload.arriving, path)
		}
	}
	m.mu.Unlock()
	if dropped {
		m.saveState()
	}
}

// unpinFormer removes the pins of the images that no archive gives any more, so that they go as
// other unused images do. What could not be unpinned stays noted.
func (m *Manager) unpinFormer(ctx context.Context) error {
	m.mu.Lock()
	former := m.preload.former
	m.mu.Unlock()
	if len(former) == 0 {
		return nil
	}
	var errs []error
	var left []string
	for _, name := range former {
		m.mu.Lock()
		given := m.preload.givenBy(name) != ""
		m.mu.Unlock()
		if given || m.cfg.Pins.has(name) {
			continue
		}
		if err := m.unpin(ctx, name); err != nil {
			errs, left = append(errs, err), append(left, name)
		}
	}
	m.mu.Lock()
	m.preload.former = append(left, m.preload.former[len(former):]...)
	m.mu.Unlock()
	m.saveState()
	return errors.Join(errs...)
}
