package source

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	v1 "k8s.io/api/core/v1"
)

const (
	// Stdin is the path that stands for standard input.
	Stdin = "-"
	// stdinFile is what verdicts about standard input have in a file's place.
	stdinFile = "<stdin>"
)

// Validate gives the verdicts that an agent with that decoder would give about manifest files and directories, without an agent; [Stdin] among the paths is read
// from stdin, and what comes through a named pipe is taken as it comes. All paths together are one set: an object that is in two of them is a
// duplicate, and of two pods with the same host port the second is refused, as when it is admitted. A file that is given by a name which no agent reads is checked, with a
// warning. Symbolic links are followed as an agent does, within the directory that they are in. A directory without manifests gives a warning.
// Verdicts about a directory's owner are not given, since the files may be meant for another place.
func Validate(decoder Decoder, stdin io.Reader, paths ...string) []Verdict {
	c := newChecker(decoder)
	var out []Verdict
	for _, path := range paths {
		out = append(out, c.path(path, stdin)...)
	}
	return out
}

// ValidateData gives the verdicts about one manifest that was read already; file is its path.
func ValidateData(nodeName, file string, data []byte) []Verdict {
	return newChecker(Decoder{NodeName: nodeName}).data(file, data)
}

// Listed is a file of a manifest directory, or why an agent does not read it.
type Listed struct {
	Path string
	Err  error
}

// List lists the files of a directory that an agent would read, in the order of their names; a path that is no directory's is itself the only one.
func List(path string) ([]Listed, error) {
	if info, err := os.Stat(path); path == Stdin || err == nil && !info.IsDir() {
		return []Listed{{Path: path}}, nil
	}
	dir, err := openDirectory(path)
	if err != nil {
		return nil, fmt.Errorf("reading a manifest: %w", err)
	}
	defer dir.close()
	names, err := dir.names()
	if err != nil {
		return nil, fmt.Errorf("reading a manifest directory: %w", err)
	}
	slices.Sort(names)
	var out []Listed
	for _, name := range names {
		if _, _, err := dir.stat(name); !errors.Is(err, errDirectory) {
			out = append(out, Listed{filepath.Join(path, name), err})
		}
	}
	return out, nil
}

// ReadManifest reads a manifest that a user named, wherever symbolic links lead to: a file, a named pipe, or [Stdin]. Of what is larger than a manifest may be,
// only so much is read that this can be seen.
func ReadManifest(path string, stdin io.Reader) ([]byte, error) {
	if path != Stdin {
		f, err := os.Open(path)
		if err != nil {
			return nil, fmt.Errorf("reading a manifest: %w", err)
		}
		defer f.Close()
		stdin = f
	}
	data, err := io.ReadAll(io.LimitReader(stdin, MaxManifest+1))
	if err != nil {
		return nil, fmt.Errorf("reading a manifest: %w", err)
	}
	return data, nil
}

// checker checks the manifests of one set.
type checker struct {
	decoder Decoder
	owners  *claims
	pods    []*v1.Pod // those that were accepted
}

func newChecker(decoder Decoder) *checker {
	return &checker{decoder: decoder, owners: &claims{keys: map[key]string{}, uids: map[string]string{}}}
}

// path gives the verdicts about a file, a directory or a stream.
func (c *checker) path(path string, stdin io.Reader) []Verdict {
	info, err := os.Stat(path)
	switch {
	case path == Stdin:
		return c.stream(stdinFile, path, stdin)
	case err == nil && info.IsDir():
		return c.directory(path)
	case err == nil && info.Mode()&fs.ModeNamedPipe != 0:
		return c.stream(path, path, nil)
	}
	dir, err := openDirectory(filepath.Dir(path))
	if err != nil {
		return []Verdict{unreadable(path, bare(err))}
	}
	defer dir.close()
	out := c.file(dir, filepath.Base(path), path)
	if hint := NameHint(path); hint != "" && info != nil && info.Mode().IsRegular() {
		out = append(out, Verdict{File: path, Accepted: true, Warnings: []string{hint}})
	}
	return out
}

// stream gives the verdicts about what can only be read once.
func (c *checker) stream(file, path string, stdin io.Reader) []Verdict {
	data, err := ReadManifest(path, stdin)
	if err != nil {
		return []Verdict{unreadable(file, err)}
	}
	return c.data(file, data)
}

// directory gives the verdicts about what an agent reads of a directory.
func (c *checker) directory(path string) []Verdict {
	dir, err := openDirectory(path)
	if err != nil {
		return []Verdict{unreadable(path, bare(err))}
	}
	defer dir.close()
	names, err := dir.names()
	if err != nil {
		return []Verdict{unreadable(path, bare(err))}
	}
	slices.Sort(names)
	var out []Verdict
	for _, name := range names {
		out = append(out, c.file(dir, name, filepath.Join(path, name))...)
	}
	if len(out) == 0 {
		out = []Verdict{{File: path, Accepted: true, Warnings: []string{"no manifests in " + path}}}
	}
	return out
}

// file gives the verdicts about one file of a directory, none if it is a directory itself.
func (c *checker) file(dir *directory, name, path string) []Verdict {
	v, err := dir.read(name, fileID{}, true)
	switch {
	case errors.Is(err, errDirectory):
		return nil
	case err != nil:
		return []Verdict{unreadable(path, err)}
	}
	return c.data(path, v.data)
}

// data gives the verdicts about one manifest.
func (c *checker) data(file string, data []byte) []Verdict {
	var out []Verdict
	for _, item := range c.decoder.Decode(file, data) {
		v := item.Verdict
		if v.Accepted {
			if conflict := c.owners.claim(item, file); conflict != "" {
				v.Accepted, v.UID, v.Message = false, "", conflict
			} else if item.Refused != nil {
				v = *item.Refused
			} else if item.Pod != nil {
				v = c.beside(item)
			}
		}
		out = append(out, v)
	}
	return out
}

// beside is the verdict about a pod that is accepted by itself, beside those before it.
func (c *checker) beside(item Item) Verdict {
	if fault := portFault(&item, c.pods); fault != nil {
		return rejected(item.Verdict, *several([]Fault{*fault})).Verdict
	}
	c.pods = append(c.pods, item.Pod)
	return item.Verdict
}

// unreadable is the verdict about what could not be read.
func unreadable(file string, err error) Verdict {
	if errors.Is(err, fs.ErrNotExist) {
		return Verdict{File: file, Message: "it does not exist"}
	}
	return Verdict{File: file, Message: err.Error()}
}
