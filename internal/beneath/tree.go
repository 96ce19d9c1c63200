package beneath

import (
	"errors"
	"io/fs"

	"golang.org/x/sys/unix"
)

// namesAtOnce is how many bytes of a directory's names are read at once.
const namesAtOnce = 32 << 10

// Tree is a walk over all files beneath a directory that containers can write to. It follows no
// symbolic link and crosses no mount point. What it takes is bounded, since containers make as many
// files as they like, and nest directories as deep as they like: it has two files open, and of each
// directory on the way it remembers only names of one read.
type Tree struct {
	// Visit is called with each file, by its name in a directory. If enter is true and the file is a
	// directory, the walk goes on in it afterwards. The walk ends with the first error.
	Visit func(in Dir, name string) (enter bool, err error)
	// TooDeep is called instead of entering a directory whose path is longer than a path can be.
	TooDeep func(path string) error

	root  int
	path  []byte // to the directory that is being read
	open  []level
	names []byte
}

// Dir is a directory on the way of a walk.
type Dir struct {
	// FD is the open directory. Path is its path beneath the directory where the walk began, which
	// itself is ".".
	FD   int
	Path string
}

// Open opens a file of the directory as a handle without access (O_PATH), a symbolic link itself.
// There is none if the file has vanished, or if something is mounted on it. Its caller closes it.
func (d Dir) Open(name string) (fd int, there bool, err error) {
	fd, err = Open(d.FD, name, unix.O_PATH|unix.O_NOFOLLOW, NoXDev|NoSymlinks)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EXDEV) {
		return -1, false, nil
	}
	return fd, err == nil, err
}

// level is a directory that the walk has not left yet.
type level struct {
	// above is the length of the path of the directory above.
	above int
	// dirs are the directories in it that are still to be entered.
	dirs []string
	// next is where to read on, and ended says that all was read.
	next  int64
	ended bool
}

// Walk walks beneath the open directory root, once. It does not visit root itself. It leaves out
// directories that are removed or replaced meanwhile.
func (t *Tree) Walk(root int) error {
	t.root, t.open, t.names = root, []level{{}}, make([]byte, namesAtOnce)
	for len(t.open) > 0 {
		top := &t.open[len(t.open)-1]
		var err error
		switch last := len(top.dirs) - 1; {
		case last >= 0:
			name := top.dirs[last]
			top.dirs = top.dirs[:last]
			err = t.enter(name)
		case top.ended:
			t.path = t.path[:top.above]
			t.open = t.open[:len(t.open)-1]
		default:
			err = t.read(top)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// enter goes down into a directory.
func (t *Tree) enter(name string) error {
	above := len(t.path)
	if above > 0 {
		t.path = append(t.path, '/')
	}
	t.path = append(t.path, name...)
	if len(t.path) >= unix.PathMax {
		path := string(t.path)
		t.path = t.path[:above]
		return t.TooDeep(path)
	}
	t.open = append(t.open, level{above: above})
	return nil
}

// read reads on in the directory at the path: until directories to enter were found, or to its end.
func (t *Tree) read(top *level) error {
	in := Dir{Path: "."}
	if len(t.path) > 0 {
		in.Path = string(t.path)
	}
	var err error
	in.FD, err = Open(t.root, in.Path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, NoXDev|NoSymlinks)
	if err != nil {
		return t.lost(top, &fs.PathError{Op: "open", Path: in.Path, Err: err})
	}
	defer func() { _ = unix.Close(in.FD) }()
	if _, err := unix.Seek(in.FD, top.next, unix.SEEK_SET); err != nil {
		return t.lost(top, &fs.PathError{Op: "seek", Path: in.Path, Err: err})
	}
	for len(top.dirs) == 0 {
		n, err := unix.ReadDirent(in.FD, t.names)
		if err != nil {
			return t.lost(top, &fs.PathError{Op: "read", Path: in.Path, Err: err})
		}
		if n == 0 {
			top.ended = true
			return nil
		}
		_, _, names := unix.ParseDirent(t.names[:n], -1, nil)
		for _, name := range names {
			enter, err := t.Visit(in, name)
			if err != nil {
				return err
			}
			if enter {
				top.dirs = append(top.dirs, name)
			}
		}
	}
	top.next, err = unix.Seek(in.FD, 0, unix.SEEK_CUR)
	return err
}

// lost leaves a directory that is not there any more, or that something is mounted on. Every other
// error ends the walk, as does that of its first directory.
func (t *Tree) lost(top *level, err error) error {
	gone := errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) ||
		errors.Is(err, unix.EXDEV) || errors.Is(err, unix.EINVAL)
	if !gone || len(t.open) == 1 {
		return err
	}
	top.ended = true
	return nil
}
