package native

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/berthd/berth/internal/atomicfile"
)

const (
	// recordExtension ends the name of a record's file; the ID is before it.
	recordExtension = ".json"
	// damagedExtension ends the name of a file that was not a record. The file is kept for somebody to
	// look at.
	damagedExtension = ".corrupt"
)

// recorded is what a record tells of.
type recorded interface {
	// recordID returns the ID; empty for no record.
	recordID() string
}

// records are records of one kind on the disk, a file for each ID. They outlive the process, and
// not a power loss: after that, nothing that they tell of exists any more. It may leave files that
// are cut off.
type records[T recorded] struct{ root *os.Root }

// openRecords opens a directory of records. It makes the directory if it is missing.
func openRecords[T recorded](dir string) (records[T], error) {
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

// load reads every record of an earlier process. It removes what a process that was killed has left
// half written, and sets aside the files that are no records. damaged says which these are. Nobody
// may write records at the same time.
func (r records[T]) load() (list []T, damaged []error, err error) {
	if err := atomicfile.RemoveUnfinished(r.root.Name()); err != nil {
		return nil, nil, fmt.Errorf("remove a half-written record: %w", err)
	}
	list, bad, err := r.read()
	if err != nil {
		return nil, nil, err
	}
	for name, why := range bad {
		damaged = append(damaged, errors.Join(why, r.root.Rename(name, name+damagedExtension)))
	}
	return list, damaged, nil
}

// all reads every record, and changes nothing. Another process may write records meanwhile.
func (r records[T]) all() ([]T, error) {
	list, damaged, err := r.read()
	return list, errors.Join(append(slices.Collect(maps.Values(damaged)), err)...)
}

// read returns the records, and by the file's name why a file is none.
func (r records[T]) read() (list []T, damaged map[string]error, err error) {
	entries, err := fs.ReadDir(r.root.FS(), ".")
	if err != nil {
		return nil, nil, fmt.Errorf("read the records: %w", err)
	}
	damaged = map[string]error{}
	for _, e := range entries {
		id, ok := strings.CutSuffix(e.Name(), recordExtension)
		if !ok {
			continue
		}
		path := filepath.Join(r.root.Name(), e.Name())
		data, err := r.root.ReadFile(e.Name())
		if errors.Is(err, fs.ErrNotExist) {
			continue // it was removed meanwhile
		}
		if err != nil {
			return nil, nil, fmt.Errorf("read the record %s: %w", path, err)
		}
		var record T
		switch err := json.Unmarshal(data, &record); {
		case err != nil:
			damaged[e.Name()] = fmt.Errorf("read the record %s: %w", path, err)
		case record.recordID() != id:
			damaged[e.Name()] = fmt.Errorf("read the record %s: it is not about what it is named for", path)
		default:
			list = append(list, record)
		}
	}
	return list, damaged, nil
}
