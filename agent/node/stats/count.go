package stats

import (
	"golang.org/x/sys/unix"

	"github.com/berthd/berth/internal/beneath"
)

// progressEvery is after how many files the count of a directory tells what it has counted so far.
const progressEvery = 1000

// namesAtOnce is how many bytes of a directory's names are read at once.
const namesAtOnce = 32 << 10

// counting is one count of a directory. What it holds in memory does not grow with the number of
// files in a directory, and it has two files open, however deep directories are nested: containers
// make as many of both as they like.
type counting struct {
	// root is the open directory, device its device.
	root   int
	device uint64
	// path leads from root to the directory that is being read. levels are the directories on the
	// way there, that one included.
	path   []byte
	levels []level
	names  []byte

	total size
	seen  int
	// linked are the files with several names that were counted.
	linked   map[uint64]bool
	progress func(size) error
	// endless says that a directory lies too deep.
	endless bool
}

// level is a directory that is not counted completely.
type level struct {
	// above is the length of the path of the directory above.
	above int
	// dirs are the directories in it that were found and not counted yet.
	dirs []string
	// next is where to read on, and ended says that all was read.
	next  int64
	ended bool
}

// count adds up the disk blocks and inodes of a directory and everything below it on the same
// mount. It opens everything beneath the directory, so a link that a container puts there meanwhile
// does not lead outside. After each [progressEvery] files it tells progress what it has counted so
// far, and ends if that returns an error.
//
// What lies so deep that no path leads there cannot be counted: it takes all that is in use on the
// file system, so that nobody hides there from a limit.
func count(dir string, progress func(size) error) (size, error) {
	root, err := beneath.Root(dir, 0)
	if err != nil {
		return size{}, err
	}
	defer func() { _ = unix.Close(root) }()
	var st unix.Stat_t
	if err := unix.Fstat(root, &st); err != nil {
		return size{}, err
	}
	c := &counting{
		root: root, device: st.Dev, levels: []level{{}}, names: make([]byte, namesAtOnce), linked: map[uint64]bool{},
		progress: progress,
	}
	c.add(&st)
	for len(c.levels) > 0 {
		if err := c.step(); err != nil {
			return c.total, err
		}
	}
	return c.total, nil
}

// step enters a directory, leaves one, or reads on in one.
func (c *counting) step() error {
	top := &c.levels[len(c.levels)-1]
	switch last := len(top.dirs) - 1; {
	case last >= 0:
		name := top.dirs[last]
		top.dirs = top.dirs[:last]
		c.enter(name)
		return nil
	case top.ended:
		c.path = c.path[:top.above]
		c.levels = c.levels[:len(c.levels)-1]
		return nil
	}
	return c.read(top)
}

// enter goes down into a directory.
func (c *counting) enter(name string) {
	if len(c.path)+1+len(name) >= unix.PathMax {
		c.addAll()
		return
	}
	c.levels = append(c.levels, level{above: len(c.path)})
	if len(c.path) > 0 {
		c.path = append(c.path, '/')
	}
	c.path = append(c.path, name...)
}

// read reads on in the directory at the path: until directories were found in it, or to its end.
func (c *counting) read(top *level) error {
	path := "."
	if len(c.path) > 0 {
		path = string(c.path)
	}
	fd, err := beneath.Open(c.root, path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW,
		beneath.NoXDev|beneath.NoSymlinks)
	if err != nil {
		return c.lost(top, err)
	}
	defer func() { _ = unix.Close(fd) }()
	if _, err := unix.Seek(fd, top.next, unix.SEEK_SET); err != nil {
		return c.lost(top, err)
	}
	for len(top.dirs) == 0 {
		n, err := unix.ReadDirent(fd, c.names)
		if err != nil {
			return c.lost(top, err)
		}
		if n == 0 {
			top.ended = true
			return nil
		}
		_, _, names := unix.ParseDirent(c.names[:n], -1, nil)
		for _, name := range names {
			if err := c.file(fd, name, top); err != nil {
				return err
			}
		}
	}
	top.next, err = unix.Seek(fd, 0, unix.SEEK_CUR)
	if err != nil {
		return c.lost(top, err)
	}
	return nil
}

// lost ends the count of a directory that cannot be read: it has just been removed or replaced, or
// something is mounted there. Only for the first directory that is an error.
func (c *counting) lost(top *level, err error) error {
	top.ended = true
	if len(c.levels) > 1 {
		return nil
	}
	return err
}

// file counts one file of the open directory dir.
func (c *counting) file(dir int, name string, in *level) error {
	if c.seen++; c.seen%progressEvery == 0 {
		if err := c.progress(c.total); err != nil {
			return err
		}
	}
	var st unix.Stat_t
	if unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW|unix.AT_NO_AUTOMOUNT) != nil || st.Dev != c.device {
		return nil // it has just been removed, or is another file system
	}
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		in.dirs = append(in.dirs, name)
	} else if st.Nlink > 1 {
		if c.linked[st.Ino] {
			return nil
		}
		c.linked[st.Ino] = true
	}
	c.add(&st)
	return nil
}

// add counts a file.
func (c *counting) add(st *unix.Stat_t) {
	// the unit is 512 bytes, whatever the file system's block size is (stat(2))
	c.total.bytes += uint64(st.Blocks) * 512
	c.total.inodes++
}

// addAll counts, once, all that is in use on the file system.
func (c *counting) addAll() {
	var st unix.Statfs_t
	if c.endless || unix.Fstatfs(c.root, &st) != nil {
		return
	}
	c.endless = true
	c.total.bytes += (st.Blocks - st.Bfree) * uint64(st.Bsize)
	c.total.inodes += st.Files - st.Ffree
}
