package stats

import (
	"golang.org/x/sys/unix"

	"github.com/berthd/berth/internal/beneath"
)

// progressEvery is after how many files the count of a directory tells what it has counted so far.
const progressEvery = 1000

// maxLinked is how many files with several names a count tells apart. They take about 40 bytes of
// memory each, and a container makes tens of millions of them if it likes.
const maxLinked = 1 << 20

// counting is one count of a directory.
type counting struct {
	device uint64
	total  size
	seen   int
	// linked are the files with several names that were counted, at most maxLinked. Beyond that each
	// name counts as a file of its own, which only the pod pays that has so many.
	linked    map[uint64]struct{}
	maxLinked int
	progress  func(size) error
}

// count adds up the disk blocks and inodes of a directory and everything below it on the same
// mount. A link that a container puts there meanwhile does not lead outside. After each
// [progressEvery] files it tells progress what it has counted so far, and ends if that returns an
// error.
//
// What lies so deep that no path leads there cannot be counted: it takes all that is in use on the
// file system, so that nobody hides there from a limit.
func count(dir string, progress func(size) error) (size, error) {
	c := &counting{linked: map[uint64]struct{}{}, maxLinked: maxLinked, progress: progress}
	return c.count(dir)
}

func (c *counting) count(dir string) (size, error) {
	root, err := beneath.Root(dir, 0)
	if err != nil {
		return size{}, err
	}
	defer func() { _ = unix.Close(root) }()
	var st unix.Stat_t
	if err := unix.Fstat(root, &st); err != nil {
		return size{}, err
	}
	c.device = st.Dev
	c.add(&st)
	tooDeep := false
	tree := &beneath.Tree{Visit: c.file, TooDeep: func(string) error {
		if !tooDeep {
			c.addAll(root)
		}
		tooDeep = true
		return nil
	}}
	err = tree.Walk(root)
	return c.total, err
}

// file counts one file.
func (c *counting) file(in beneath.Dir, name string) (enter bool, err error) {
	if c.seen++; c.seen%progressEvery == 0 {
		if err := c.progress(c.total); err != nil {
			return false, err
		}
	}
	var st unix.Stat_t
	found := unix.Fstatat(in.FD, name, &st, unix.AT_SYMLINK_NOFOLLOW|unix.AT_NO_AUTOMOUNT) == nil
	if !found || st.Dev != c.device {
		return false, nil // it has just been removed, or is another file system
	}
	isDir := st.Mode&unix.S_IFMT == unix.S_IFDIR
	if st.Nlink > 1 && !isDir {
		if _, counted := c.linked[st.Ino]; counted {
			return false, nil
		}
		if len(c.linked) < c.maxLinked {
			c.linked[st.Ino] = struct{}{}
		}
	}
	c.add(&st)
	return isDir, nil
}

// add counts a file.
func (c *counting) add(st *unix.Stat_t) {
	// the unit is 512 bytes, whatever the file system's block size is (stat(2))
	c.total.bytes += uint64(st.Blocks) * 512
	c.total.inodes++
}

// addAll counts all that is in use on the file system of an open directory.
func (c *counting) addAll(dir int) {
	var st unix.Statfs_t
	if unix.Fstatfs(dir, &st) == nil {
		c.total.bytes += (st.Blocks - st.Bfree) * uint64(st.Bsize)
		c.total.inodes += st.Files - st.Ffree
	}
}
