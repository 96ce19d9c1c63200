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
)

const (
	// suffix ends the name of a record's file.
	suffix = ".json"
	// unfinished ends the name of a file that is being written.
	unfinished = ".tmp"
	// corrupt ends the name of a file that was no record, and is kept for whoever wants to look at it.
	corrupt = ".corrupt"
)

// errCorrupt marks files that are no records at all.
var errCorrupt = errors.New("not a record")

// Store keeps records as files, one per pod, mode 0600.
//
// A record is replaced by one rename, so that an agent killed at any moment leaves the old record or the new one. It is not synced to the disk: after a
// power loss nothing runs any more, and what the runtime still knows stands in for a record that was cut off.
type Store struct {
	dir string

	mu sync.Mutex
	// last is the checksum of what was last written.
	last map[types.UID][sha256.Size]byte
}

// Open returns the store in dir, which is made if it is missing, and removes what a killed agent left half written.
func Open(dir string) (*Store, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("making the checkpoint directory: %w", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("reading the checkpoint directory: %w", err)
	}
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), unfinished) && !e.IsDir() {
			if err := os.Remove(filepath.Join(dir, e.Name())); err != nil {
				return nil, fmt.Errorf("removing a half-written checkpoint: %w", err)
			}
		}
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

// replace gives the file new content in one rename.
func (s *Store) replace(path string, data []byte) error {
	tmp := path + unfinished
	err := os.WriteFile(tmp, data, 0o600)
	if errors.Is(err, fs.ErrNotExist) { // somebody removed the directory
		if err = os.MkdirAll(s.dir, 0o700); err == nil {
			err = os.WriteFile(tmp, data, 0o600)
		}
	}
	if err == nil {
		err = os.Rename(tmp, path)
	}
	if err != nil {
		_ = os.Remove(tmp) // where the disk is full it must not stay
	}
	return err
}

// Remove drops the pod's record; one that is not there is nothing.
func (s *Store) Remove(uid types.UID) error {
	s.mu.Lock()
	delete(s.last, uid)
	s.mu.Unlock()
	for _, path := range []string{s.path(uid), s.path(uid) + corrupt} {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("removing the checkpoint of pod %s: %w", uid, err)
		}
	}
	return nil
}

// Load returns all records. Files that cannot be used are reported together in err, beside the records that can: one of another version, or that
// cannot be read now, is left where it is, and one that is no record (cut off by a power loss) is put aside under the ending .corrupt.
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

// read reads the record of which the file's name is the escaped UID.
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
	return rec, nil
}

func (s *Store) path(uid types.UID) string {
	return filepath.Join(s.dir, fileName(uid)+suffix)
}

// fileName makes one path element of a UID, which may be any text that a manifest gives.
func fileName(uid types.UID) string { return url.PathEscape(string(uid)) }
