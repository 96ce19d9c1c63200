package logs

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Directory is a container's log directory, held open. It stays the same directory even if its name
// leads elsewhere. Its methods follow no link, change only logs, and may be called from several
// goroutines. Removing a file that does not exist succeeds.
type Directory struct {
	dir *dir
}

// Entry is one file of a log.
type Entry struct {
	// Name is the file's name in the directory.
	Name string
	// Base is the log that the file belongs to, N.log. Attempt is that N: the attempt of the
	// container that writes or wrote the log.
	Base    string
	Attempt int
	// Rotated reports that the file is not Base itself. Temporary reports that an unfinished
	// compression left the file behind.
	Rotated, Temporary bool
	// Size is in bytes.
	Size int64
}

// Compressed reports whether the entry is a rotated and compressed part.
func (e Entry) Compressed() bool {
	return e.Rotated && !e.Temporary && strings.HasSuffix(e.Name, compressedSuffix)
}

// Stem names a rotated part for its whole life, compressed or not. The order of the stems is the
// order of a log's parts, oldest first.
func (e Entry) Stem() string { return strings.TrimSuffix(e.Name, compressedSuffix) }

// OpenDirectory opens the directory path beneath root. The error is of class fs.ErrNotExist if
// there is no such directory, and [ErrEscape] if path is or contains a link.
func OpenDirectory(root, path string) (*Directory, error) {
	d, _, err := openDir(File{Root: root, Path: path + "/x"})
	if err != nil {
		return nil, fmt.Errorf("open log directory %s: %w", path, err)
	}
	return &Directory{dir: d}, nil
}

// Close closes the directory.
func (d *Directory) Close() error { return d.dir.close() }

// List returns the files of all logs in the directory, sorted by name. It leaves out what is not a
// regular file, and what does not have a log's name.
func (d *Directory) List() ([]Entry, error) {
	names, err := d.dir.names()
	if err != nil {
		return nil, fmt.Errorf("list logs: %w", err)
	}
	slices.Sort(names)
	entries := make([]Entry, 0, len(names))
	for _, name := range names {
		base, attempt, ok := logOf(name)
		if !ok {
			continue
		}
		var stat unix.Stat_t
		if err := unix.Fstatat(d.dir.fd, name, &stat, unix.AT_SYMLINK_NOFOLLOW); err != nil ||
			stat.Mode&unix.S_IFMT != unix.S_IFREG {
			continue // removed meanwhile, or not a log
		}
		entries = append(entries, Entry{
			Name: name, Base: base, Attempt: attempt, Rotated: name != base,
			Temporary: strings.HasSuffix(name, temporarySuffix), Size: stat.Size,
		})
	}
	return entries, nil
}

// Size returns a file's size in bytes. The error is of class fs.ErrNotExist if there is no such
// file.
func (d *Directory) Size(name string) (int64, error) {
	var stat unix.Stat_t
	if err := unix.Fstatat(d.dir.fd, name, &stat, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return 0, &fs.PathError{Op: "stat", Path: name, Err: err}
	}
	return stat.Size, nil
}

// Open opens a log for reading.
func (d *Directory) Open(name string) (*os.File, error) { return d.dir.open(name) }

// Rotate renames the log base to the name of the next part, and returns that name. The runtime
// writes to the same file until it reopens the log.
func (d *Directory) Rotate(base string, now time.Time) (name string, err error) {
	parts, err := d.dir.parts(base)
	if err != nil {
		return "", fmt.Errorf("rotate %s: %w", base, err)
	}
	newest := ""
	for _, p := range parts { // a part that somebody else named does not count
		if stamp := strings.TrimPrefix(p.stem, base+"."); p.stem > newest {
			if _, err := time.Parse(rotatedLayout, stamp); err == nil {
				newest = p.stem
			}
		}
	}
	name = nextStem(base, newest, now)
	if err := d.rename(base, name); err != nil {
		return "", fmt.Errorf("rotate %s: %w", base, err)
	}
	return name, nil
}

// Restore undoes a rotation after which the runtime did not reopen the log. If the log exists again
// because the runtime did reopen it, Restore does nothing and restored is false.
func (d *Directory) Restore(base, name string) (restored bool, err error) {
	err = d.rename(name, base)
	if errors.Is(err, fs.ErrExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("take the rotation of %s back: %w", base, err)
	}
	return true, nil
}

// Remove removes a file of a log.
func (d *Directory) Remove(name string) error {
	if err := unix.Unlinkat(d.dir.fd, name, 0); err != nil && !errors.Is(err, unix.ENOENT) {
		return &fs.PathError{Op: "remove", Path: name, Err: err}
	}
	return nil
}

// rename renames a file, and never replaces another file.
func (d *Directory) rename(from, to string) error {
	err := unix.Renameat2(d.dir.fd, from, d.dir.fd, to, unix.RENAME_NOREPLACE)
	// the file system cannot rename without replacing: for a moment the file has both names
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) {
		if err = unix.Linkat(d.dir.fd, from, d.dir.fd, to, 0); err == nil {
			err = unix.Unlinkat(d.dir.fd, from, 0)
		}
	}
	if err != nil {
		return &fs.PathError{Op: "rename to " + to, Path: from, Err: err}
	}
	return nil
}

// Compress replaces a rotated part by a compressed one of the same time and mode. The compressed
// part takes the place of the other only when it is complete and on the disk. A part that is
// removed meanwhile stays removed, and the error is fs.ErrNotExist. A failed compression removes
// what it wrote.
func (d *Directory) Compress(ctx context.Context, name string) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("compress %s: %w", name, err)
		}
	}()
	from, err := d.dir.open(name)
	if err != nil {
		return err
	}
	defer from.Close()
	info, err := from.Stat()
	if err != nil {
		return err
	}
	temporary := name + temporarySuffix
	if err := d.Remove(temporary); err != nil {
		return err
	}
	if err := d.compress(ctx, from, info, temporary); err != nil {
		return errors.Join(err, d.Remove(temporary))
	}
	if !d.holds(name, info) {
		return errors.Join(fs.ErrNotExist, d.Remove(temporary))
	}
	if err := unix.Renameat(d.dir.fd, temporary, d.dir.fd, name+compressedSuffix); err != nil {
		return errors.Join(err, d.Remove(temporary))
	}
	return d.Remove(name)
}

// compress writes the compressed content of a part to a new file.
func (d *Directory) compress(ctx context.Context, from *os.File, info fs.FileInfo, temporary string) (err error) {
	fd, err := unix.Openat(d.dir.fd, temporary, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC,
		uint32(info.Mode().Perm()))
	if err != nil {
		return &fs.PathError{Op: "create", Path: temporary, Err: err}
	}
	to := os.NewFile(uintptr(fd), temporary)
	defer func() { err = errors.Join(err, to.Close()) }()
	// Logs have short lines that repeat. The quickest level takes a third of the time of the
	// default one, and the result is only a little larger.
	z, err := gzip.NewWriterLevel(to, gzip.BestSpeed)
	if err != nil {
		return err
	}
	if _, err := io.Copy(z, &bounded{ctx: ctx, r: from}); err != nil {
		return err
	}
	if err := errors.Join(z.Close(), to.Sync()); err != nil {
		return err
	}
	// A reader decides by this time whether it has to read the part.
	at := unix.NsecToTimeval(info.ModTime().UnixNano())
	return unix.Futimes(fd, []unix.Timeval{at, at})
}

// bounded reads until its context ends.
type bounded struct {
	ctx context.Context //nolint:containedctx // the reader lives as long as one call
	r   io.Reader
}

func (b *bounded) Read(p []byte) (int, error) {
	if b.ctx.Err() != nil {
		return 0, context.Cause(b.ctx)
	}
	return b.r.Read(p)
}

// holds reports whether a name still leads to the file.
func (d *Directory) holds(name string, file fs.FileInfo) bool {
	f, err := d.dir.open(name)
	if err != nil {
		return false
	}
	defer f.Close()
	info, err := f.Stat()
	return err == nil && os.SameFile(info, file)
}
