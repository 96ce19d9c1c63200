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
)

// preloadRetry is the pause after a preload that failed for want of a runtime.
const preloadRetry = time.Second

// Archive is an image archive of the images directory.
type Archive struct {
	Path string `json:"path"`
	// Size and ModTime are the file's when it was last looked at; a file that changes either is imported again.
	Size    int64     `json:"size"`
	ModTime time.Time `json:"modTime"`
	// Images are the names that were imported from it, Error why none was.
	Images []string `json:"images,omitempty"`
	Error  string   `json:"error,omitempty"`
}

// preload is what is known of the images directory. It is guarded by the manager's lock.
type preload struct {
	pending  bool // the first look at the directory has not ended: an image that is missing may come from it
	waiters  map[types.UID]bool
	archives map[string]*Archive // by path
	loaded   bool                // the state file was read
}

// Archives returns what became of the files of the images directory, by path.
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

// rescan asks for another look at the images directory. The lock may be held.
func (m *Manager) rescan() {
	if m.cfg.ImagesDir == "" || m.deps.Importer == nil {
		return
	}
	select {
	case m.kick <- struct{}{}:
	default:
	}
}

// preloads makes the first preload, again while it fails, and further ones when asked for, until ctx ends.
func (m *Manager) preloads(ctx context.Context) error {
	late := time.AfterFunc(m.cfg.StallTimeout, m.preloaded) // an import that hangs must not keep pods from pulling
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
		case <-m.kick:
		}
	}
}

// preloaded ends the time in which missing images may still come from the directory.
func (m *Manager) preloaded() {
	m.mu.Lock()
	m.preload.pending = false
	wake := m.takeWaiters()
	m.mu.Unlock()
	wake.call(m.deps.Wake)
}

// takeWaiters returns the pods that wait for an import, and forgets them. The lock is held.
func (m *Manager) takeWaiters() wakes {
	wake := wakes(m.preload.waiters)
	m.preload.waiters = make(map[types.UID]bool)
	return wake
}

// Preload imports the images directory's archives that are new, changed, or whose images have gone, one after another, and returns what went wrong,
// joined. An archive that cannot be imported does not stop the others, and is tried again when its file changes; a runtime that is away
// (errdefs.IsUnavailable) stops all. [Manager.Run] calls it; two calls at once may import the same file twice, which does no harm.
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

// archivesIn returns the directory's archives, by name; none where there is no directory.
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
		if strings.HasPrefix(name, ".") || !strings.HasSuffix(name, ".tar") && !strings.HasSuffix(name, ".tar.gz") && !strings.HasSuffix(name, ".tgz") {
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

// imported says whether the file needs no import: it was imported and its images are still there, or it failed and has not changed.
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

// importFile imports one archive, notes what became of it and wakes those who wait for an image.
func (m *Manager) importFile(ctx context.Context, file Archive) error {
	start := time.Now()
	limited, cancel := context.WithTimeout(ctx, m.cfg.PullTimeout)
	defer cancel()
	names, err := m.deps.Importer.Import(limited, file.Path)
	if ctx.Err() != nil || errdefs.IsUnavailable(err) || errdefs.IsNotImplemented(err) {
		return err // it says nothing about the file
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

// dropArchives forgets files that are gone.
func (m *Manager) dropArchives(files []Archive) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for path := range m.preload.archives {
		if !slices.ContainsFunc(files, func(a Archive) bool { return a.Path == path }) {
			delete(m.preload.archives, path)
		}
	}
}

// loadState reads the state file, once. A file that cannot be read costs an import, no more.
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

// saveState writes the state file, replacing it at once.
func (m *Manager) saveState() {
	if m.cfg.StateFile == "" {
		return
	}
	data, err := json.MarshalIndent(m.Archives(), "", "  ")
	if err == nil {
		err = os.MkdirAll(filepath.Dir(m.cfg.StateFile), 0o700)
	}
	tmp := m.cfg.StateFile + ".tmp"
	if err == nil {
		err = os.WriteFile(tmp, data, 0o600)
	}
	if err == nil {
		err = os.Rename(tmp, m.cfg.StateFile)
	}
	if err != nil {
		m.deps.Logger.Warn("Could not note which image archives were imported", "err", err)
	}
}
