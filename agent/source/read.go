package source

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// fileID is the identity of one version of a file. Two versions differ in it, so nobody has to read
// them to compare them.
type fileID struct {
	device, inode uint64
	size          int64
	modified      unix.Timespec
	changed       unix.Timespec
}

// version is one version of a manifest file as it was read.
type version struct {
	id       fileID
	link     bool // it was read through a symbolic link
	data     []byte
	warnings []string
}

// errBusy means that a process has the file open for writing.
var errBusy = errors.New("the file is open for writing; waiting until it is closed")

// errDirectory means that the name belongs to a directory. Directories are not read.
var errDirectory = errors.New("it is a directory")

// directory reads the files of one directory. It reads nothing outside of the directory, also if a
// link leads there.
type directory struct {
	path string
	root *os.Root
	// check, if set, refuses files by their modes.
	check func(fs.FileInfo) error
}

// openDirectory opens a manifest directory. The caller closes it.
func openDirectory(path string) (*directory, error) {
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, err
	}
	return &directory{path: path, root: root}, nil
}

func (d *directory) close() { _ = d.root.Close() }

// names lists the names in the directory that may be manifests, unsorted. Links to directories are
// in the list.
func (d *directory) names() ([]string, error) {
	f, err := d.root.Open(".")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	all, err := f.ReadDir(-1)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, entry := range all {
		if isManifestName(entry.Name()) && !entry.IsDir() {
			names = append(names, entry.Name())
		}
	}
	return names, nil
}

// stat returns the file's identity and a name that opens the file below the root. The error is
// fs.ErrNotExist if the name no longer exists, and errDirectory if the name belongs to a directory.
// The caller shows every other error to the user.
func (d *directory) stat(name string) (string, fileID, error) {
	info, err := d.root.Lstat(name)
	if err != nil {
		return "", fileID{}, bare(err)
	}
	target := name
	if info.Mode()&fs.ModeSymlink != 0 {
		if target, err = d.resolve(name); err != nil {
			return "", fileID{}, err
		}
		if info, err = d.root.Stat(target); err != nil {
			return "", fileID{}, fmt.Errorf("following the symbolic link: %w", opaque(err))
		}
	}
	if err := checkKind(info.Mode()); err != nil {
		return "", fileID{}, err
	}
	return target, identify(info), nil
}

// resolve follows a symbolic link, as long as the link stays inside the directory.
func (d *directory) resolve(name string) (string, error) {
	if _, err := d.root.Stat(name); err == nil {
		return name, nil
	}
	// A link may also lead into the directory by an absolute path.
	real, err := filepath.EvalSymlinks(d.path)
	if err != nil {
		return "", fmt.Errorf("following the symbolic link: %w", opaque(err))
	}
	target, err := filepath.EvalSymlinks(filepath.Join(d.path, name))
	if err != nil {
		return "", fmt.Errorf("following the symbolic link: %w", opaque(err))
	}
	inside, err := filepath.Rel(real, target)
	if err != nil || !filepath.IsLocal(inside) {
		return "", errors.New("the symbolic link leads out of the manifest directory")
	}
	return inside, nil
}

// isLink reports whether a name is a symbolic link.
func (d *directory) isLink(name string) bool {
	info, err := d.root.Lstat(name)
	return err == nil && info.Mode()&fs.ModeSymlink != 0
}

// read reads a file. It returns nil if the file is still the known version. complete means that the
// file's writer has closed it. Without complete, read returns errBusy for a file that a process has
// open for writing.
func (d *directory) read(name string, known fileID, complete bool) (*version, error) {
	target, id, err := d.stat(name)
	if err != nil {
		return nil, err
	}
	if id == known {
		return nil, nil
	}
	f, err := d.root.OpenFile(target, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, bare(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, bare(err)
	}
	if err := checkKind(info.Mode()); err != nil {
		return nil, err
	}
	if d.check != nil {
		if err := errors.Join(d.check(info), d.checkLink(name), d.checkAbove(target)); err != nil {
			return nil, err
		}
	}
	if !complete && writers(f) == bySomebody {
		return nil, errBusy
	}
	v := &version{id: identify(info), warnings: ownerWarnings(info), link: d.isLink(name)}
	// One byte more than the limit shows that the file is too large.
	if v.data, err = io.ReadAll(io.LimitReader(f, MaxManifest+1)); err != nil {
		return nil, bare(err)
	}
	return v, nil
}

// checkLink checks the directories below the root through which a symbolic link leads.
func (d *directory) checkLink(name string) error {
	const most = 40 // as many links as the kernel follows
	for range most {
		link, err := d.root.Readlink(name)
		if err != nil || filepath.IsAbs(link) {
			return nil //nolint:nilerr // it is no link; absolute ones are resolved to what has none
		}
		name = filepath.Join(filepath.Dir(name), link)
		if err := d.checkAbove(name); err != nil {
			return err
		}
	}
	return nil
}

// checkAbove checks the directories between the root and a file.
func (d *directory) checkAbove(name string) error {
	for dir := filepath.Dir(name); dir != "."; dir = filepath.Dir(dir) {
		info, err := d.root.Stat(dir)
		if err == nil {
			err = d.check(info)
		}
		if err != nil {
			return fmt.Errorf("its link leads through %s: %w", dir, err)
		}
	}
	return nil
}

// writing is the kernel's answer to the question who writes to a file.
type writing int

const (
	byNobody   writing = iota // no process has it open for writing
	bySomebody                // some process has it open for writing
	notKnown                  // leases do not work on this file
)

// writers finds out whether any process has the file open for writing. It asks for a read lease,
// and the kernel refuses the lease if a process writes. writers returns a granted lease at once; a
// writer that comes in between waits for microseconds.
func writers(f *os.File) writing {
	conn, err := f.SyscallConn()
	if err != nil {
		return notKnown
	}
	who := notKnown
	_ = conn.Control(func(fd uintptr) {
		_, err := unix.FcntlInt(fd, unix.F_SETLEASE, unix.F_RDLCK)
		switch {
		case err == nil:
			_, _ = unix.FcntlInt(fd, unix.F_SETLEASE, unix.F_UNLCK)
			who = byNobody
		case errors.Is(err, unix.EAGAIN):
			who = bySomebody
		}
	})
	return who
}

// unwritten reports whether a file that was just created may still wait for its writer. It may if
// it is empty, or if the kernel cannot say whether it is open for writing.
func (d *directory) unwritten(name string) bool {
	f, err := d.root.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return false // the read reports the error
	}
	defer f.Close()
	switch writers(f) {
	case bySomebody:
		return false // the read reports that it has to wait
	case byNobody:
		info, err := f.Stat()
		return err == nil && info.Size() == 0
	}
	return true
}

// identify returns a file's identity.
func identify(info fs.FileInfo) fileID {
	id := fileID{size: info.Size()}
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		id.device, id.inode = uint64(st.Dev), st.Ino //nolint:unconvert // 32 bits wide on some architectures
		id.modified, id.changed = unix.Timespec(st.Mtim), unix.Timespec(st.Ctim)
	}
	return id
}

// ownerWarnings names the users other than root who can change a file or directory. Such a user can
// become root on this node.
func ownerWarnings(info fs.FileInfo) []string {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return nil
	}
	var warnings []string
	if st.Uid != 0 && int(st.Uid) != os.Geteuid() {
		warnings = append(warnings,
			fmt.Sprintf("it belongs to user %d, who can run any pod on this node; it should belong to root", st.Uid))
	}
	if mode := info.Mode().Perm(); mode&0o022 != 0 {
		warnings = append(warnings,
			fmt.Sprintf("its mode %04o lets others than its owner write to it, who can so run any pod on this node",
				mode))
	}
	if !info.IsDir() && st.Nlink > 1 {
		warnings = append(warnings, fmt.Sprintf("it has %d hard links: it can be changed under other names", st.Nlink))
	}
	return warnings
}

// checkKind returns an error if the mode is not that of a file that can be read.
func checkKind(mode fs.FileMode) error {
	switch {
	case mode.IsDir():
		return errDirectory
	case !mode.IsRegular():
		return fmt.Errorf("it is not a regular file but %s", kindOf(mode))
	}
	return nil
}

// kindOf names a file's kind.
func kindOf(mode fs.FileMode) string {
	switch {
	case mode.IsDir():
		return "a directory"
	case mode&fs.ModeNamedPipe != 0:
		return "a named pipe"
	case mode&fs.ModeSocket != 0:
		return "a socket"
	case mode&fs.ModeDevice != 0:
		return "a device"
	default:
		return strings.TrimSpace("a special file " + mode.String())
	}
}

// bare removes the operation and the path from an error, because the result already names the file.
func bare(err error) error {
	var pathError *fs.PathError
	if errors.As(err, &pathError) {
		return pathError.Err
	}
	return err
}

// opaque keeps only an error's text. Without it, a link to a missing file looks like a file that
// was deleted.
func opaque(err error) error {
	return errors.New(bare(err).Error())
}
