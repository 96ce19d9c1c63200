package store

import (
	"errors"
	"fmt"
	"math"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

const (
	// logFile is how much of the disk the next file of etcd's log takes at once, in bytes.
	logFile = 64 << 20
	// leastFree is how much space the disk of a store must have for a write, in bytes: a file of the
	// log, and what others take between the look and the write. etcd makes the file ahead of its need,
	// and ends when it needs one that once could not be made, although there may be room again.
	leastFree = logFile + 32<<20
	// newStore is how much space a new store must have, in bytes: etcd's log has two files of 64 MiB
	// from the start, a first start writes some 30 MiB, and every write leaves leastFree.
	newStore = 288 << 20
	// ahead is how much space the file of the content has beyond its end, in bytes. What was
	// acknowledged and is not yet in that file fits there when the disk fills up suddenly.
	ahead = 16 << 20
)

// ErrNoRoom is of a store whose disk is full.
var ErrNoRoom = errors.New("the disk is full")

// room keeps space for the file of a store's content. Its methods may be called from any goroutine.
type room struct {
	dir string

	mu sync.Mutex
	// reserved is how much of the disk the file has, in bytes. It was counted for the file with that
	// inode: a defragmentation puts another in its place.
	reserved int64
	inode    uint64
}

// Room returns nil if the store has room for another write. It returns an [ErrNoRoom] that says
// where if the disk has none: etcd does not survive a write then, and so nobody may write. It
// returns an [ErrLimit] if the store is too large for such a write.
func (s *Store) Room(w Write) error {
	if err := s.room.check(); err != nil {
		return err
	}
	return s.withinLimit(w)
}

func (r *room) check() error {
	free, err := freeSpace(r.dir)
	if err != nil {
		return err
	}
	if free < leastFree {
		return r.full(free)
	}
	if err := r.reserve(); errors.Is(err, unix.ENOSPC) {
		return r.full(free)
	} else if err != nil {
		return fmt.Errorf("keep room for %s: %w", database(r.dir), err)
	}
	return nil
}

// freeSpace returns how many bytes the disk of a folder has free.
func freeSpace(dir string) (uint64, error) {
	var disk unix.Statfs_t
	if err := unix.Statfs(dir, &disk); err != nil {
		return 0, fmt.Errorf("look for room on the disk of %s: %w", dir, err)
	}
	return disk.Bavail * uint64(disk.Bsize), nil
}

// full is the error of a disk with that many bytes free.
func (r *room) full(free uint64) error {
	return fmt.Errorf("%w: %s has %d MiB left and needs %d for a write, free some space", ErrNoRoom, r.dir, free>>20,
		leastFree>>20)
}

// reserve gives the file of the content blocks of the disk beyond its end (fallocate(2)).
func (r *room) reserve() error {
	var info unix.Stat_t
	if err := unix.Stat(database(r.dir), &info); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if info.Ino == r.inode && info.Size+ahead/2 <= r.reserved {
		return nil
	}
	f, err := os.OpenFile(database(r.dir), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	switch err := unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_KEEP_SIZE, 0, info.Size+ahead); {
	case errors.Is(err, unix.EOPNOTSUPP):
		r.reserved, r.inode = math.MaxInt64, info.Ino // such a file system keeps nothing
	case err != nil:
		return err
	default:
		r.reserved, r.inode = info.Size+ahead, info.Ino
	}
	return nil
}
