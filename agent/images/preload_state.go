package images

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/berthd/berth/internal/atomicfile"
)

// preloadState is the content of the state file.
type preloadState struct {
	Archives []Archive `json:"archives"`
	// Former are names of images whose pins are to be removed.
	Former []string `json:"former,omitempty"`
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
	var state preloadState
	if err == nil {
		err = json.Unmarshal(data, &state)
	}
	if err != nil {
		m.deps.Logger.Warn("Could not read which image archives were imported; they are imported again", "err", err)
		return
	}
	for _, a := range state.Archives {
		if a.Error != "" {
			a.Size, a.Error = -1, "" // it is tried again
		}
		m.preload.archives[a.Path] = &a
	}
	m.preload.former = state.Former
}

// saveState replaces the state file. The file need not outlive a power loss: without it, the
// archives are only imported again.
func (m *Manager) saveState() {
	if m.cfg.StateFile == "" {
		return
	}
	m.mu.Lock()
	state := preloadState{Former: m.preload.former}
	for _, a := range m.preload.archives {
		state.Archives = append(state.Archives, *a)
	}
	m.mu.Unlock()
	data, err := json.MarshalIndent(state, "", "  ")
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
