package checkpoint

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/berthd/berth/agent/pod/worker"
	"github.com/berthd/berth/internal/atomicfile"
)

const (
	// suffix ends the name of a record's file.
	suffix = ".json"
	// corrupt ends the name of a file that was not a record. The file is kept for somebody to look
	// at.
	corrupt = ".corrupt"
)

// errCorrupt marks files that are not records at all.
var errCorrupt = errors.New("not a record")

// Store keeps records as files, one per pod, mode 0600.
//
// A record is replaced by one rename: if the agent is killed at any moment, the old record or the
// new one is left. Records are written [atomicfile.OverCrash], without a sync to the disk, because
// they have to outlive the agent, not the machine. After a power loss no container runs any more,
// and what the runtime still knows takes the place of a record that was cut off.
type Store struct {
	dir string

	mu sync.Mutex
	// last is the checksum of what was last written.
	last map[types.UID][sha256.Size]byte
}

// Open returns the store in dir. It makes dir if dir is missing, and removes files that a killed
// agent left half written.
func Open(dir string) (*Store, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("making the checkpoint directory: %w", err)
	}
	if err := atomicfile.RemoveUnfinished(dir); err != nil {
		return nil, fmt.Errorf("removing half-written checkpoints: %w", err)
	}
	return &Store{dir: dir, last: map[types.UID][sha256.Size]byte{}}, nil
}

// Save writes the record if it differs from what was last written.
func (s *Store) Save(uid types.UID, rec *Record) error {
	rec.Version = Version
	data, err := json.Marshal(rec)
	if err != nil {
		return fmt.Errorf("encoding the checkpoint of pod %s: %w", uid, err)
	}
	sum := sha256.Sum256(data)
	s.mu.Lock()
	same := s.last[uid] == sum
	s.mu.Unlock()
	if same {
		return nil
	}
	if err := s.replace(s.path(uid), data); err != nil {
		return fmt.Errorf("writing the checkpoint of pod %s: %w", uid, err)
	}
	s.mu.Lock()
	s.last[uid] = sum
	s.mu.Unlock()
	return nil
}

// replace gives the file new content in one rename. It makes the directory if somebody removed it.
func (s *Store) replace(path string, data []byte) error {
	err := atomicfile.Write(path, data, 0o600, atomicfile.OverCrash)
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.MkdirAll(s.dir, 0o700); err != nil { // somebody removed the directory
		return err
	}
	return atomicfile.Write(path, data, 0o600, atomicfile.OverCrash)
}

// Remove removes the pod's record. A record that does not exist is no error.
func (s *Store) Remove(uid types.UID) error {
	s.mu.Lock()
	delete(s.last, uid)
	s.mu.Unlock()
	for _, path := range []string{s.path(uid), s.path(uid) + corrupt} {
		if err := atomicfile.Remove(path, atomicfile.OverCrash); err != nil {
			return fmt.Errorf("removing the checkpoint of pod %s: %w", uid, err)
		}
	}
	return nil
}

// Load returns all records that can be used. err reports together the files that cannot be used. A
// file of another version, or that cannot be read now, stays where it is. A file that is not a
// record (for instance, cut off by a power loss) gets the ending .corrupt.
func (s *Store) Load() (map[types.UID]*Record, error) {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, fmt.Errorf("reading the checkpoint directory: %w", err)
	}
	out := map[types.UID]*Record{}
	var errs []error
	for _, e := range entries {
		name, ok := strings.CutSuffix(e.Name(), suffix)
		if !ok || e.IsDir() {
			continue
		}
		path := filepath.Join(s.dir, e.Name())
		rec, err := read(path, name)
		if errors.Is(err, errCorrupt) {
			err = errors.Join(err, os.Rename(path, path+corrupt))
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("checkpoint %s: %w", path, err))
			continue
		}
		out[rec.Pod.UID] = rec
	}
	return out, errors.Join(errs...)
}

// read reads a record. name is the file's name: the escaped UID.
func read(path, name string) (*Record, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	rec := &Record{}
	if err := json.Unmarshal(data, rec); err != nil {
		return nil, fmt.Errorf("%w: %w", errCorrupt, err)
	}
	if rec.Version != Version {
		return nil, fmt.Errorf("it has version %d, and this agent reads version %d", rec.Version, Version)
	}
	if rec.Pod == nil || fileName(rec.Pod.UID) != name {
		return nil, fmt.Errorf("%w: it is not about the pod that it is named for", errCorrupt)
	}
	if rec.Stop != nil && rec.Stop.Cause == "" {
		rec.Stop.Cause = causeOf(rec.Stop.Reason)
	}
	return rec, nil
}

// causeOf returns the cause of a stop that an older agent recorded without one. It finds the cause
// by the stop's reason.
func causeOf(reason string) worker.Cause {
	switch reason {
	case "Drained":
		return worker.CauseDrain
	case "Terminated":
		return worker.CauseShutdown
	case "DeadlineExceeded":
		return worker.CauseDeadline
	}
	return worker.CauseRemoved
}

func (s *Store) path(uid types.UID) string {
	return filepath.Join(s.dir, fileName(uid)+suffix)
}

// fileName makes one path element of a UID. A UID may be any text that a manifest gives.
func fileName(uid types.UID) string { return url.PathEscape(string(uid)) }
