package doctor

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Files are the machine's files below a directory; empty means the machine's root directory.
type Files string

func (f Files) path(path string) string { return filepath.Join("/", string(f), path) }

// text returns a file's content without the white space around it; empty if it cannot be read.
func (f Files) text(path string) string {
	data, err := os.ReadFile(f.path(path))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(data))
}

func (f Files) exists(path string) bool {
	_, err := os.Stat(f.path(path))
	return err == nil
}

// denied reports whether a directory is there and this user may not read it.
func (f Files) denied(path string) bool {
	_, err := os.ReadDir(f.path(path))
	return errors.Is(err, fs.ErrPermission)
}

func (f Files) stat(path string) (fs.FileInfo, error) { return os.Stat(f.path(path)) }

// names returns the names in a directory, sorted; none if it cannot be read.
func (f Files) names(path string) []string {
	entries, err := os.ReadDir(f.path(path))
	if err != nil {
		return nil
	}
	out := make([]string, 0, len(entries))
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}
