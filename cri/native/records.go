package native

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/berthd/berth/internal/atomicfile"
)

// recordExtension ends the name of a record's file; the ID is before it.
const recordExtension = ".json"

// records are records of one kind on the disk, a file for each ID. They outlive the process, and
// not a power loss: after that, nothing that they tell of exists any more.
type records[T any] struct{ root *os.Root }

// openRecords opens a directory of records. It makes the directory if it is missing.
func openRecords[T any](dir string) (records[T], error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return records[T]{}, fmt.Errorf("make the directory of records: %w", err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return records[T]{}, fmt.Errorf("open the directory of records: %w", err)
	}
	return records[T]{root: root}, nil
}

// save writes a record.
func (r records[T]) save(id string, record T) error {
	data, err := json.Marshal(record)
	if err == nil {
		err = atomicfile.WriteIn(r.root, id+recordExtension, data, 0o600, atomicfile.OverCrash)
	}
	if err != nil {
		return fmt.Errorf("record the state of %s: %w", id, err)
	}
	return nil
}

// remove removes a record, if there is one.
func (r records[T]) remove(id string) error {
	if err := r.root.Remove(id + recordExtension); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the record of %s: %w", id, err)
	}
	return nil
}

// all reads every record, and removes what a process that was killed has left half written.
func (r records[T]) all() ([]T, error) {
	if err := atomicfile.RemoveUnfinished(r.root.Name()); err != nil {
		return nil, fmt.Errorf("remove a half-written record: %w", err)
	}
	entries, err := fs.ReadDir(r.root.FS(), ".")
	if err != nil {
		return nil, fmt.Errorf("read the records: %w", err)
	}
	var out []T
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), recordExtension) {
			continue
		}
		data, err := r.root.ReadFile(e.Name())
		if err != nil {
			return nil, fmt.Errorf("read the record %s: %w", filepath.Join(r.root.Name(), e.Name()), err)
		}
		var record T
		if err := json.Unmarshal(data, &record); err != nil {
			return nil, fmt.Errorf("read the record %s: %w", filepath.Join(r.root.Name(), e.Name()), err)
		}
		out = append(out, record)
	}
	return out, nil
}
