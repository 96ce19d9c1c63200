package images

import (
	"cmp"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// settle is how long the size and the time of an archive must stay the same before it is
	// imported, and settleEmpty how long those of an empty file.
	settle      = 2 * time.Second
	settleEmpty = time.Minute
)

// Archive is an image archive in the images directory.
type Archive struct {
	Path string `json:"path"`
	// Size and ModTime are the file's at its last check. A file with another size or time is
	// imported again.
	Size    int64     `json:"size"`
	ModTime time.Time `json:"modTime"`
	// Images are the names of the imported images. Error says why none was imported. A file that
	// has neither was not imported yet.
	Images []string `json:"images,omitempty"`
	Error  string   `json:"error,omitempty"`
}

// sameFile reports whether the file has not changed between two looks.
func (a *Archive) sameFile(b *Archive) bool {
	return a != nil && b != nil && a.Path == b.Path && a.Size == b.Size && a.ModTime.Equal(b.ModTime)
}

// archivesIn returns the directory's archives, the newest last. It returns none if the directory
// does not exist.
func archivesIn(dir string) ([]Archive, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var out []Archive
	for _, e := range entries {
		name := e.Name()
		if strings.HasPrefix(name, ".") ||
			!strings.HasSuffix(name, ".tar") && !strings.HasSuffix(name, ".tar.gz") &&
				!strings.HasSuffix(name, ".tgz") {
			continue
		}
		path := filepath.Join(dir, name)
		info, err := os.Stat(path) // archives may be symlinks
		if err != nil || !info.Mode().IsRegular() {
			continue
		}
		out = append(out, Archive{Path: path, Size: info.Size(), ModTime: info.ModTime().UTC()})
	}
	slices.SortStableFunc(out, func(a, b Archive) int {
		return cmp.Or(a.ModTime.Compare(b.ModTime), strings.Compare(a.Path, b.Path))
	})
	return out, nil
}

// arrival is a file as it was first seen with its size and time.
type arrival struct {
	Archive
	at time.Time
}

// arriving are the files of the images directory that somebody may still write, by path.
type arriving map[string]arrival

// settled reports whether the file is complete, as far as that can be known: it has not changed for
// a while, and no process has it open for writing.
func (a arriving) settled(file Archive, now time.Time) bool {
	if first, ok := a[file.Path]; !ok || !first.sameFile(&file) {
		a[file.Path] = arrival{file, now}
	}
	// the clock of the file's time may be another one
	quiet := max(now.Sub(file.ModTime), now.Sub(a[file.Path].at))
	if quiet < settle || file.Size == 0 && quiet < settleEmpty || beingWritten(file.Path) {
		return false
	}
	delete(a, file.Path)
	return true
}

// beingWritten reports whether a process has the file open for writing: the kernel gives no read
// lease then. It is false where the file system has no leases.
func beingWritten(path string) bool {
	file, err := os.Open(path)
	if err != nil {
		return false
	}
	defer func() { _ = file.Close() }() // gives the lease back
	_, err = unix.FcntlInt(file.Fd(), unix.F_SETLEASE, unix.F_RDLCK)
	return errors.Is(err, unix.EAGAIN)
}
