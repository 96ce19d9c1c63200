package store

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"sync/atomic"
	"time"

	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap/zapcore"
	"golang.org/x/sys/unix"
)

// openTimeout is how long another program may have the file of the store's content open.
const openTimeout = 10 * time.Second

// firstPages is the size of a database before it has content, in bytes: four pages.
var firstPages = 4 * int64(os.Getpagesize())

// database is the file with the store's content, journal the folder of the log that is written
// before it.
func database(dir string) string { return filepath.Join(dir, "member", "snap", "db") }
func journal(dir string) string  { return filepath.Join(dir, "member", "wal") }

// startEtcd starts etcd. What etcd calls a reason to exit or to panic while it reads its files is
// an error that says what to do.
func startEtcd(c *embed.Config, starting *atomic.Bool) (etcd *embed.Etcd, err error) {
	starting.Store(true)
	defer starting.Store(false)
	// A file that is shorter than it says faults when it is read.
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		switch cause := recover().(type) {
		case nil:
		case error:
			err = unusable(c.Dir, cause)
		default:
			err = unusable(c.Dir, fmt.Errorf("%v", cause))
		}
	}()
	if err := checkContent(c.Dir); err != nil {
		return nil, unusable(c.Dir, err)
	}
	if etcd, err = embed.StartEtcd(c); err == nil {
		return etcd, nil
	}
	var system unix.Errno
	if errors.As(err, &system) { // a file or a socket that cannot be used
		return nil, fmt.Errorf("start the store in %s: %w", c.Dir, err)
	}
	return nil, unusable(c.Dir, err)
}

// unusable says what to do with a store that cannot be read.
func unusable(dir string, cause error) error {
	if errors.Is(cause, unix.ENOSPC) {
		return fmt.Errorf("start the store in %s: its disk is full, free some space: %w", dir, cause)
	}
	return fmt.Errorf("the store in %s is damaged (%w): restore a snapshot with \"berth-apiserver snapshot restore "+
		"FILE\", which keeps the damaged store beside the restored one, or move the folder elsewhere and %s", dir, cause,
		toBeginEmpty(filepath.Dir(dir)))
}

// checkContent returns what is wrong with the files of a store. A new store has none, and one whose
// first start was broken off may have an empty database alone, or the beginning of one, which goes.
func checkContent(dir string) (err error) {
	logs, err := filepath.Glob(filepath.Join(journal(dir), "*.wal"))
	if err != nil {
		return fmt.Errorf("look for the store's log: %w", err)
	}
	info, err := os.Stat(database(dir))
	switch {
	case errors.Is(err, fs.ErrNotExist) && len(logs) > 0:
		return fmt.Errorf("the file %s is missing", database(dir))
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("look for the store's content: %w", err)
	case info.Size() == 0 && len(logs) > 0:
		return fmt.Errorf("the file %s is empty", database(dir))
	case info.Size() == 0:
		return nil
	}
	if len(logs) == 0 && info.Size() <= firstPages {
		return removeTorn(database(dir))
	}
	// etcd opens it in a goroutine of its own, where nobody can recover.
	db, err := bbolt.Open(database(dir), 0o600, &bbolt.Options{
		ReadOnly: true, PreLoadFreelist: true, Timeout: openTimeout,
	})
	if err != nil {
		return fmt.Errorf("read %s: %w", database(dir), err)
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	if len(logs) > 0 {
		return nil
	}
	return db.View(func(tx *bbolt.Tx) error {
		if keys := tx.Bucket([]byte("key")); keys != nil {
			if first, _ := keys.Cursor().First(); first != nil {
				return fmt.Errorf("the log in %s is missing", journal(dir))
			}
		}
		return nil
	})
}

// removeTorn removes a database without content if it cannot be read: it is one that was being made.
func removeTorn(path string) error {
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{ReadOnly: true, Timeout: openTimeout})
	if err == nil {
		return db.Close()
	}
	if errors.Is(err, berrors.ErrTimeout) {
		return err
	}
	return os.Remove(path)
}

// atStart is what follows a line of etcd's log that etcd itself does not survive: while the store
// starts a panic with the line's error, for [startEtcd], and later what zap does.
type atStart struct {
	starting *atomic.Bool
	later    zapcore.CheckWriteAction
}

// OnWrite is called after the line has been written.
func (a atStart) OnWrite(line *zapcore.CheckedEntry, fields []zapcore.Field) {
	if !a.starting.Load() {
		a.later.OnWrite(line, fields)
		return
	}
	cause := errors.New(line.Message)
	for _, f := range fields {
		if err, ok := f.Interface.(error); ok {
			cause = fmt.Errorf("%s: %w", line.Message, err)
		}
	}
	panic(cause)
}
