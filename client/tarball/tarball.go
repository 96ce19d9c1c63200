// Package tarball packs local files for a container, and unpacks files from a container.
//
// Purpose: the local ends of berth cp. An archive from a container is not trusted: its names are
// resolved beneath the target directory, symbolic links, devices and files with holes are skipped,
// and a hard link becomes a link to the file that came before it, so that no archive takes more of
// the disk than its own length.
//
// Truth owned: none.
//
// Concurrency: [Pack] and [Unpack] may run at the same time, each with its own streams and
// directories.
package tarball

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Skipped is called with the name and the kind of each file that is not copied.
type Skipped func(name, what string)

// Pack writes a file, or a directory with everything below it, to w as an archive, under the given
// name. Symbolic links are packed as links, whatever their targets are. Pack calls skipped for
// everything that is not a file, a directory or a link. Nothing outside of the directory is read,
// even if others put links into the place of files meanwhile.
func Pack(w io.Writer, local, name string, skipped Skipped) error {
	info, err := os.Lstat(local)
	if err != nil {
		return err
	}
	dir, top := filepath.Dir(local), filepath.Base(local)
	if info.IsDir() {
		dir, top = local, "."
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	out := tar.NewWriter(w)
	err = fs.WalkDir(root.FS(), top, func(file string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		in := name
		if file != top {
			in = path.Join(name, file)
		}
		return pack(out, root, file, in, skipped)
	})
	return errors.Join(err, out.Close())
}

// pack writes one file of a directory.
func pack(out *tar.Writer, root *os.Root, file, name string, skipped Skipped) error {
	info, err := root.Lstat(file)
	if err != nil {
		return err
	}
	target := ""
	switch {
	case info.Mode()&fs.ModeSymlink != 0:
		if target, err = root.Readlink(file); err != nil {
			return err
		}
	case !info.Mode().IsRegular() && !info.IsDir():
		skipped(filepath.Join(root.Name(), file), kindOf(info.Mode()))
		return nil
	}
	header, err := tar.FileInfoHeader(info, target)
	if err != nil {
		return err
	}
	if header.Name = name; info.IsDir() {
		header.Name += "/"
	}
	if err := out.WriteHeader(header); err != nil || !info.Mode().IsRegular() {
		return err
	}
	f, err := root.OpenFile(file, os.O_RDONLY|unix.O_NONBLOCK, 0) // it may have become a pipe
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	n, err := io.Copy(out, io.LimitReader(f, info.Size())) // a file may grow at the same time
	if err == nil && n < info.Size() {
		err = fmt.Errorf("%s has become shorter while it was read", f.Name())
	}
	return err
}

// Options are the options of [Unpack].
type Options struct {
	// Base is the name of the copied file or directory in the container; entries beside and above
	// it are refused. As is its name in the target directory.
	Base, As string
	// NoPreserve ignores the modes in the archive.
	NoPreserve bool
	// Skipped is called for symbolic links, devices and files with holes, which are not unpacked.
	Skipped Skipped
}

// kindOf names the kind of something that is neither a file nor a directory.
func kindOf(mode fs.FileMode) string {
	switch {
	case mode&fs.ModeNamedPipe != 0:
		return "a named pipe"
	case mode&fs.ModeSocket != 0:
		return "a socket"
	case mode&fs.ModeDevice != 0:
		return "a device"
	}
	return "neither a file nor a directory"
}

// Unpack unpacks an archive into the existing directory dir. It returns the number of files and
// directories in the archive.
func Unpack(r io.Reader, dir string, o Options) (entries int, err error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return 0, err
	}
	defer func() { _ = root.Close() }()
	in := tar.NewReader(r)
	files := map[string]bool{} // what was unpacked, by its local name
	for {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			return entries, nil
		}
		if err != nil {
			return entries, fmt.Errorf("read the archive that the container sent: %w", err)
		}
		name, ok := o.rename(h.Name)
		if !ok {
			return entries, fmt.Errorf("the container sent %q, which is not below %q", h.Name, o.Base)
		}
		switch first, _ := o.rename(h.Linkname); {
		case h.Typeflag == tar.TypeDir, h.Typeflag == tar.TypeReg && !sparse(h):
			err = unpack(root, in, h, name, o)
		case h.Typeflag == tar.TypeLink && files[first] && first != name:
			err = link(root, first, name)
		default:
			o.Skipped(h.Name, whatIs(h))
			continue
		}
		if err != nil {
			return entries, fmt.Errorf("write %s: %w", filepath.Join(dir, name), err)
		}
		files[name] = h.Typeflag != tar.TypeDir
		entries++
	}
}

// whatIs names the kind of an entry that is not unpacked.
func whatIs(h *tar.Header) string {
	switch h.Typeflag {
	case tar.TypeSymlink:
		return "a symbolic link to " + h.Linkname
	case tar.TypeLink:
		return "a hard link to " + h.Linkname + ", which is not copied with it"
	case tar.TypeReg, tar.TypeGNUSparse:
		return "a file with holes, which would take more of the disk here than in the archive"
	}
	return kindOf(h.FileInfo().Mode())
}

// sparse reports whether a file of the archive has holes, which the archive only counts (GNU tar,
// --sparse). [tar.Reader] makes zeros of them, and a few bytes may stand for any number of these.
func sparse(h *tar.Header) bool {
	for key := range h.PAXRecords {
		if strings.HasPrefix(key, "GNU.sparse.") {
			return true
		}
	}
	return false
}

// rename returns the local name of an entry of the archive, relative to the target directory.
func (o Options) rename(entry string) (string, bool) {
	clean := path.Clean(strings.TrimPrefix(entry, "/"))
	if !filepath.IsLocal(clean) {
		return "", false // o.As would take a ".." away
	}
	rest, ok := clean, o.Base == "."
	if !ok {
		if rest, ok = strings.CutPrefix(clean, o.Base); rest != "" && !strings.HasPrefix(rest, "/") {
			return "", false
		}
	}
	name := path.Join(o.As, rest)
	return name, ok && filepath.IsLocal(name)
}

// link unpacks a hard link as a link to the file that was unpacked first.
func link(root *os.Root, first, name string) error {
	if err := mkParent(root, name); err != nil {
		return err
	}
	if err := root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return root.Link(first, name)
}

// mkParent makes the directory of a file.
func mkParent(root *os.Root, name string) error {
	if parent := path.Dir(name); parent != "." {
		return root.MkdirAll(parent, 0o755)
	}
	return nil
}

func unpack(root *os.Root, in io.Reader, h *tar.Header, name string, o Options) error {
	if h.Typeflag == tar.TypeDir {
		return root.MkdirAll(name, 0o755)
	}
	if err := mkParent(root, name); err != nil {
		return err
	}
	f, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, in)
	if err == nil && !o.NoPreserve {
		err = f.Chmod(h.FileInfo().Mode().Perm())
	}
	return errors.Join(err, f.Close())
}
