package images

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berthd/berth/internal/atomicfile"
)

// preloadRetry is the pause after a preload that failed because the runtime did not answer.
const preloadRetry = time.Second

// Archive is an image archive in the images directory.
type Archive struct {
	Path string `json:"path"`
	// Size and ModTime are the file's at its last check. A file with another size or time is
	// imported again.
	Size    int64     `json:"size"`
	ModTime time.Time `json:"modTime"`
	// Images are the names of the imported images. Error says why none was imported.
	Images []string `json:"images,omitempty"`
	Error  string   `json:"error,omitempty"`
}

// preload is what is known of the images directory. The manager's lock guards it.
type preload struct {
	pending  bool // the first scan of the directory has not ended: a missing image may come from it
	waiters  map[types.UID]bool
	archives map[string]*Archive // by path
	loaded   bool                // the state file was read
}

// Archives returns the files of the images directory and the results of their imports, by path.
func (m *Manager) Archives() []Archive {
	m.mu.Lock()
	defer m.mu.Unlock()
	list := make([]Archive, 0, len(m.preload.archives))
	for _, a := range m.preload.archives {
		list = append(list, *a)
	}
	slices.SortFunc(list, func(a, b Archive) int { return strings.Compare(a.Path, b.Path) })
	return list
}

// rescan requests another scan of the images directory. The lock may be held.
func (m *Manager) rescan() {
	if m.cfg.ImagesDir == "" || m.deps.Importer == nil {
		return
	}
	m.scan.Notify()
}

// preloads makes the first preload, repeats it while it fails, and makes further ones on request,
// until ctx ends.
func (m *Manager) preloads(ctx context.Context) error {
	// an import that hangs must not stop pods from pulling
	late := time.AfterFunc(m.cfg.StallTimeout, m.preloaded)
	defer late.Stop()
	for {
		err := m.Preload(ctx)
		if ctx.Err() != nil {
			return nil
		}
		var again <-chan time.Time
		if err != nil {
			m.deps.Logger.Warn("Could not import all image archives", "dir", m.cfg.ImagesDir, "err", err)
			if errdefs.IsUnavailable(err) {
				again = time.After(preloadRetry)
			}
		}
		if again == nil {
			m.preloaded()
		}
		select {
		case <-ctx.Done():
			return nil
		case <-again:
		case <-m.scan:
		}
	}
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
// were removed. It imports one after another and returns all errors, joined. An archive that cannot
// be imported does not stop the others; it is tried again if its file changes. A runtime that is
// not available (errdefs.IsUnavailable) stops all. [Manager.Run] calls Preload. Two calls at the
// same time may import the same file twice, which does no harm.
func (m *Manager) Preload(ctx context.Context) error {
	if m.cfg.ImagesDir == "" || m.deps.Importer == nil {
		return nil
	}
	m.loadState()
	files, err := archivesIn(m.cfg.ImagesDir)
	if err != nil {
		return fmt.Errorf("read the images directory: %w", err)
	}
	m.dropArchives(files)
	var errs []error
	for _, file := range files {
		known, err := m.imported(ctx, file)
		if err == nil && !known {
			err = m.importFile(ctx, file)
		}
		if err != nil {
			errs = append(errs, err)
		}
		if ctx.Err() != nil || errdefs.IsUnavailable(err) || errdefs.IsNotImplemented(err) {
			break
		}
	}
	return errors.Join(errs...)
}

// archivesIn returns the directory's archives, by name. It returns none if the directory does not
// exist.
func archivesIn(dir string) ([]Archive, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var out []Archive
	for _, e := range entries {
		name := e.Name()
		if strings.HasPrefix(name, ".") ||
			!strings.HasSuffix(name, ".tar") && !strings.HasSuffix(name, ".tar.gz") &&
				!strings.HasSuffix(name, ".tgz") {
			continue
		}
		path := filepath.Join(dir, name)
		info, err := os.Stat(path) // archives may be symlinks
		if err != nil || !info.Mode().IsRegular() {
			continue
		}
		out = append(out, Archive{Path: path, Size: info.Size(), ModTime: info.ModTime().UTC()})
	}
	return out, nil
}

// imported reports whether the file needs no import: it was imported and its images still exist, or
// it failed and has not changed.
func (m *Manager) imported(ctx context.Context, file Archive) (bool, error) {
	m.mu.Lock()
	last := m.preload.archives[file.Path]
	m.mu.Unlock()
	if last == nil || last.Size != file.Size || !last.ModTime.Equal(file.ModTime) {
		return false, nil
	}
	for _, name := range last.Images {
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

// importFile imports one archive, records the result, and wakes the pods that wait for an image.
func (m *Manager) importFile(ctx context.Context, file Archive) error {
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
	m.preload.archives[file.Path] = &file
	wake := wakes{}
	if err == nil {
		m.arrivals++
		wake = m.takeWaiters()
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
	}
	m.mu.Unlock()
	m.saveState()
	if err == nil {
		m.deps.Logger.Info("Imported images", "archive", file.Path, "images", names, "took", time.Since(start))
	}
	wake.call(m.deps.Wake)
	return err
}

// dropArchives drops the records of files that no longer exist.
func (m *Manager) dropArchives(files []Archive) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for path := range m.preload.archives {
		if !slices.ContainsFunc(files, func(a Archive) bool { return a.Path == path }) {
			delete(m.preload.archives, path)
		}
	}
}

// loadState reads the state file, once. If the file cannot be read, the archives are imported
// again.
func (m *Manager) loadState() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.preload.loaded || m.cfg.StateFile == "" {
		return
	}
	m.preload.loaded = true
	data, err := os.ReadFile(m.cfg.StateFile)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	var list []*Archive
	if err == nil {
		err = json.Unmarshal(data, &list)
	}
	if err != nil {
		m.deps.Logger.Warn("Could not read which image archives were imported; they are imported again", "err", err)
		return
	}
	for _, a := range list {
		if a != nil && a.Error == "" {
			m.preload.archives[a.Path] = a
		}
	}
}

// saveState replaces the state file. The file need not outlive a power loss: without it, the
// archives are only imported again.
func (m *Manager) saveState() {
	if m.cfg.StateFile == "" {
		return
	}
	data, err := json.MarshalIndent(m.Archives(), "", "  ")
	if err == nil {
		err = os.MkdirAll(filepath.Dir(m.cfg.StateFile), 0o700)
	}
	if err == nil {
		err = atomicfile.Write(m.cfg.StateFile, data, 0o600, atomicfile.OverCrash)
	}
	if err != nil {
		m.deps.Logger.Warn("Could not note which image archives were imported", "err", err)
	}
}
