// Package checkpoint keeps on disk the few facts about a pod that the runtime does not.
//
// Purpose: a restart of the agent must disturb nothing: the pod as it was admitted (so that it can be ended properly when its manifest is gone),
// the admission's verdict, the last status, crash back-off, probe results, hooks that ran.
//
// Truth owned: admission verdicts and hook completions. All else is a memory of what others own, used only where they have forgotten.
//
// Concurrency: a [Store] is safe for concurrent use on different pods; the calls for one pod come from its worker alone.
package checkpoint

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berthd/berth/agent/plan"
	"github.com/berthd/berth/probes"
)

// Version is the format's version; a record of another version is not read.
const Version = 1

// Record is what is kept of one pod.
type Record struct {
	Version int `json:"version"`
	// Pod is the pod as it was admitted, without its status.
	Pod *v1.Pod `json:"pod"`
	// File is the manifest that it came from, where it came from one.
	File string `json:"file,omitempty"`
	// Admitted and Rejected are admission's verdict; neither is set before it.
	Admitted bool      `json:"admitted,omitempty"`
	Rejected *Rejected `json:"rejected,omitempty"`
	// Ended is set once everything that the pod held has been given back: it must never run again under this UID.
	Ended  bool          `json:"ended,omitempty"`
	Status *v1.PodStatus `json:"status,omitempty"`
	// Backoff is the crash back-off by container name.
	Backoff map[string]plan.Backoff `json:"backoff,omitempty"`
	// PostStart are the ids of running containers whose postStart hook still has to run or to finish.
	PostStart map[string]bool `json:"postStart,omitempty"`
	// InitializedIn is the sandbox in which initialisation was complete.
	InitializedIn string `json:"initializedIn,omitempty"`
	// Probes is what the probes said last.
	Probes probes.Snapshot `json:"probes,omitempty"`
}

// Rejected is a reason not to run a pod at all.
type Rejected struct {
	Reason  string `json:"reason"`
	Message string `json:"message"`
}

// Store keeps records as files, one per pod, mode 0600.
type Store struct {
	dir string

	mu   sync.Mutex
	last map[types.UID][]byte
}

// Open returns the store in dir, which is made if it is missing.
func Open(dir string) (*Store, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("making the checkpoint directory: %w", err)
	}
	return &Store{dir: dir, last: map[types.UID][]byte{}}, nil
}

// Save writes the record if it differs from what was last written. The file is replaced in one rename.
func (s *Store) Save(uid types.UID, rec *Record) error {
	rec.Version = Version
	data, err := json.Marshal(rec)
	if err != nil {
		return fmt.Errorf("encoding the checkpoint of pod %s: %w", uid, err)
	}
	s.mu.Lock()
	same := bytes.Equal(s.last[uid], data)
	s.mu.Unlock()
	if same {
		return nil
	}
	tmp := s.path(uid) + ".tmp"
	if err := os.WriteFile(tmp, data, 0o600); err != nil {
		return fmt.Errorf("writing the checkpoint of pod %s: %w", uid, err)
	}
	if err := os.Rename(tmp, s.path(uid)); err != nil {
		return fmt.Errorf("replacing the checkpoint of pod %s: %w", uid, err)
	}
	s.mu.Lock()
	s.last[uid] = data
	s.mu.Unlock()
	return nil
}

// Remove drops the pod's record; one that is not there is nothing.
func (s *Store) Remove(uid types.UID) error {
	s.mu.Lock()
	delete(s.last, uid)
	s.mu.Unlock()
	if err := os.Remove(s.path(uid)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing the checkpoint of pod %s: %w", uid, err)
	}
	return nil
}

// Load returns all records. Files that cannot be read as records (cut off by a power loss, of another version) are left where they are and
// reported together in err, beside the records that can.
func (s *Store) Load() (map[types.UID]*Record, error) {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, fmt.Errorf("reading the checkpoint directory: %w", err)
	}
	out := map[types.UID]*Record{}
	var errs []error
	for _, e := range entries {
		name, ok := strings.CutSuffix(e.Name(), ".json")
		if !ok {
			continue
		}
		rec, err := s.read(types.UID(name))
		if err != nil {
			errs = append(errs, err)
			continue
		}
		out[types.UID(name)] = rec
	}
	return out, errors.Join(errs...)
}

func (s *Store) read(uid types.UID) (*Record, error) {
	data, err := os.ReadFile(s.path(uid))
	if err != nil {
		return nil, fmt.Errorf("reading the checkpoint of pod %s: %w", uid, err)
	}
	rec := &Record{}
	if err := json.Unmarshal(data, rec); err != nil {
		return nil, fmt.Errorf("decoding the checkpoint %s: %w", s.path(uid), err)
	}
	if rec.Version != Version || rec.Pod == nil || rec.Pod.UID != uid {
		return nil, fmt.Errorf("checkpoint %s has version %d and is not a record of pod %s", s.path(uid), rec.Version, uid)
	}
	return rec, nil
}

func (s *Store) path(uid types.UID) string {
	return filepath.Join(s.dir, filepath.Base(string(uid))+".json")
}
