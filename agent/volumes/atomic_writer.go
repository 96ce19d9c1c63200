package volumes

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berthd/berth/internal/beneath"
)

const (
	// dataLink is the symbolic link to the directory of the current content. Containers may watch
	// it. newDataLink is its successor, before the rename.
	dataLink    = "..data"
	newDataLink = "..data_tmp"
	// timestampFormat begins the name of a directory of content. A random number follows.
	timestampFormat = "..2006_01_02_15_04_05."
	// contentDirMode is the mode of directories of content.
	contentDirMode fs.FileMode = 0o755
	// fsGroupFileBits and fsGroupContentDirBits are added for a pod with an fsGroup, in volumes
	// that containers only read.
	fsGroupFileBits       fs.FileMode = 0o440
	fsGroupContentDirBits fs.FileMode = fs.ModeSetgid | 0o550
)

// writer makes a directory hold a payload. Readers see either all of the old content or all of the
// new content:
//
//	..data -> ..2026_01_02_03_04_05.123     renamed into place, which is the one moment of change
//	..2026_01_02_03_04_05.123/key           the files
//	key -> ..data/key                       what users see, a link for the first part of each path
//
// The writer may be cut off after any step. The next write removes what is left over and goes on.
type writer struct {
	// root is the directory.
	root *os.Root
	// group owns all that is written; nil is no group.
	group *int64
	now   func() time.Time
	// failpoint is called before each step, unless it is nil. Tests stop the writer there.
	failpoint func(step string)
}

// write makes the directory hold exactly the files, and the empty directories dirs beside them. The
// first part of each of dirs must be the first part of a file. changed reports whether the content
// was changed; equal content is not written again. After an error the old content is untouched, or
// the new content is complete with some links missing.
func (w *writer) write(files payload, dirs []string) (changed bool, err error) {
	if err := files.validate(); err != nil {
		return false, err
	}
	current, err := w.current()
	if err != nil {
		return false, err
	}
	w.step("sweep")
	if err := w.sweep(current); err != nil {
		return false, fmt.Errorf("remove leftovers: %w", err)
	}
	if current == "" || !w.holds(current, files, dirs) {
		next, err := w.writeContent(files, dirs)
		if err != nil {
			return false, err
		}
		if err := w.swap(next); err != nil {
			return false, errors.Join(err, w.removeAll(next))
		}
		changed, current = true, next
	}
	w.step("links")
	if err := w.links(files.tops()); err != nil {
		return changed, err
	}
	if !changed {
		return false, nil
	}
	w.step("remove old")
	return true, w.sweep(current)
}

func (w *writer) step(name string) {
	if w.failpoint != nil {
		w.failpoint(name)
	}
}

// current returns the name of the directory of the current content. It is empty if there is none
// that this writer can have made.
func (w *writer) current() (string, error) {
	target, err := w.root.Readlink(dataLink)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.EINVAL) {
		return "", nil // there is nothing, or something that is not a link
	}
	if err != nil {
		return "", err
	}
	if target == dataLink || target == newDataLink || !strings.HasPrefix(target, "..") || target == ".." ||
		strings.Contains(target, "/") {
		return "", nil
	}
	return target, nil
}

// sweep removes whatever begins with "..", except the current content and the link to it.
func (w *writer) sweep(current string) error {
	entries, err := fs.ReadDir(w.root.FS(), ".")
	if err != nil {
		return err
	}
	for _, entry := range entries {
		name := entry.Name()
		if strings.HasPrefix(name, "..") && name != dataLink && name != current {
			if err := w.removeAll(name); err != nil {
				return err
			}
		}
	}
	return nil
}

// removeAll removes a file or a directory without crossing a mount point.
func (w *writer) removeAll(name string) error {
	dir, err := w.root.Open(".")
	if err != nil {
		return err
	}
	defer dir.Close()
	return beneath.Remove(context.Background(), int(dir.Fd()), name)
}

// holds reports whether the directory of content has exactly these files and directories. Modes and
// owners are not compared, because they never change for one pod.
func (w *writer) holds(current string, files payload, dirs []string) bool {
	wanted := map[string]bool{}
	for name := range files {
		addParents(wanted, path.Dir(name))
	}
	for _, dir := range dirs {
		addParents(wanted, dir)
	}
	seenFiles, seenDirs := 0, 0
	err := fs.WalkDir(w.root.FS(), current, func(name string, entry fs.DirEntry, err error) error {
		name = strings.TrimPrefix(strings.TrimPrefix(name, current), "/")
		want, isFile := files[name]
		switch {
		case err != nil:
			return err
		case name == "" && entry.IsDir():
			return nil
		case entry.IsDir() && wanted[name]:
			seenDirs++
			return nil
		case entry.Type().IsRegular() && isFile && w.equal(current+"/"+name, want.data):
			seenFiles++
			return nil
		}
		return errDiffers
	})
	return err == nil && seenFiles == len(files) && seenDirs == len(wanted)
}

var errDiffers = errors.New("differs")

func addParents(dirs map[string]bool, dir string) {
	for ; dir != "."; dir = path.Dir(dir) {
		dirs[dir] = true
	}
}

// equal reports whether a file has this data. A file that cannot be read counts as different, and
// is replaced. A container can cause that with a lease, which does not take a right to write.
func (w *writer) equal(name string, data []byte) bool {
	same, err := sameContent(w.root, name, data)
	return err == nil && same
}

// writeContent writes a new directory of content and returns its name. It removes the directory if
// it fails.
func (w *writer) writeContent(files payload, dirs []string) (string, error) {
	w.step("make directory")
	name := w.now().UTC().Format(timestampFormat) + strconv.FormatUint(rand.Uint64(), 10)
	if err := w.root.Mkdir(name, contentDirMode); err != nil {
		return "", err
	}
	if err := w.fill(name, files, dirs); err != nil {
		return "", errors.Join(err, w.removeAll(name))
	}
	return name, nil
}

// fill writes the files and directories into the directory, with their modes and owners.
func (w *writer) fill(top string, files payload, dirs []string) error {
	all := map[string]bool{}
	for name := range files {
		addParents(all, path.Dir(name))
	}
	for _, dir := range dirs {
		addParents(all, dir)
	}
	sorted := []string{""}
	for dir := range all {
		sorted = append(sorted, "/"+dir)
	}
	slices.Sort(sorted) // parents before what lies in them
	for _, dir := range sorted {
		if err := w.fillDir(top + dir); err != nil {
			return err
		}
	}
	for name, file := range files {
		w.step("write file")
		if err := w.fillFile(top+"/"+name, file); err != nil {
			return err
		}
	}
	return nil
}

// fillDir makes a directory, unless it exists, and sets its mode and owner, whatever the umask.
func (w *writer) fillDir(dir string) error {
	if err := w.root.Mkdir(dir, contentDirMode); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	mode := contentDirMode
	if w.group != nil {
		if err := w.root.Lchown(dir, -1, int(*w.group)); err != nil {
			return err
		}
		mode |= fsGroupContentDirBits
	}
	return w.root.Chmod(dir, mode)
}

func (w *writer) fillFile(name string, c content) error {
	file, err := w.root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer file.Close()
	if _, err := file.Write(c.data); err != nil {
		return err
	}
	mode, owner, group := c.mode, -1, -1
	if c.owner != nil {
		owner = int(*c.owner)
	}
	if w.group != nil {
		group = int(*w.group)
		mode |= fsGroupFileBits
	}
	if owner >= 0 || group >= 0 {
		if err := file.Chown(owner, group); err != nil {
			return err
		}
	}
	if err := file.Chmod(mode); err != nil {
		return err
	}
	return file.Close() // some file systems report a full disk only now
}

// swap makes the directory the current content.
func (w *writer) swap(next string) error {
	w.step("make link")
	if err := w.link(next, newDataLink); err != nil {
		return err
	}
	w.step("swap")
	if info, err := w.root.Lstat(dataLink); err == nil && info.Mode().Type() != fs.ModeSymlink {
		if err := w.removeAll(dataLink); err != nil {
			return err
		}
	}
	return w.root.Rename(newDataLink, dataLink)
}

func (w *writer) link(target, name string) error {
	if err := w.root.Symlink(target, name); err != nil {
		return err
	}
	if w.group == nil {
		return nil
	}
	return w.root.Lchown(name, -1, int(*w.group))
}

// links makes the links that users see, and removes the links to files that are gone.
func (w *writer) links(tops []string) error {
	for _, name := range tops {
		if err := w.userLink(name); err != nil {
			return err
		}
	}
	entries, err := fs.ReadDir(w.root.FS(), ".")
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if entry.Type() != fs.ModeSymlink || slices.Contains(tops, entry.Name()) {
			continue
		}
		if target, err := w.root.Readlink(entry.Name()); err == nil && strings.HasPrefix(target, dataLink+"/") {
			if err := w.root.Remove(entry.Name()); err != nil {
				return err
			}
		}
	}
	return nil
}

// userLink makes one link. It removes an empty directory in the link's place, which was made for a
// subPath before the file existed. A directory that is a mount point, or that has some in it,
// stays.
func (w *writer) userLink(name string) error {
	target := dataLink + "/" + name
	have, err := w.root.Readlink(name)
	if err == nil && have == target {
		return nil
	}
	if info, err := w.root.Lstat(name); err == nil {
		if err := w.root.Remove(name); err != nil && info.IsDir() {
			return nil
		}
	}
	return w.link(target, name)
}
