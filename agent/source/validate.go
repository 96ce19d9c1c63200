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
	"k8s.io/apimachinery/pkg/types"

	"github.com/berthd/berth/agent/node/admit"
	"github.com/berthd/berth/agent/source/objects"
)

const (
	// Stdin is the path that stands for standard input.
	Stdin = "-"
	// stdinFile is the file name in results about standard input.
	stdinFile = "<stdin>"
)

// Validate returns the results that an agent with that decoder would give for manifest files and
// directories. It needs no agent. The path [Stdin] means stdin, and a named pipe is read as a
// stream.
//
// All paths together are one set:
//   - An object that is in two paths is a duplicate.
//   - If two pods have the same host port, the second one is refused, as at admission.
//   - A pod that does more than the decoder's Pod Security Standard allows is refused.
//   - A ConfigMap or Secret that a pod needs and that no path has gives a warning.
//   - A file whose name no agent reads is checked, with a warning.
//   - A symbolic link is followed as an agent follows it: only within its own directory.
//   - A directory without manifests gives a warning.
//   - The owner of a directory gives no result, because the files may be meant for another place.
func Validate(decoder Decoder, stdin io.Reader, paths ...string) []Result {
	c := newChecker(decoder)
	var out []Result
	for _, path := range paths {
		out = append(out, c.path(path, stdin)...)
	}
	for i := range out {
		out[i].Warnings = append(out[i].Warnings, c.missing(out[i].UID)...)
	}
	return out
}

// ValidateData returns the results of one manifest that was read already. file is the manifest's
// path.
func ValidateData(nodeName, file string, data []byte) []Result {
	return newChecker(Decoder{NodeName: nodeName}).data(file, data)
}

// Listed is a file of a manifest directory, or the reason why an agent does not read it.
type Listed struct {
	Path string
	Err  error
}

// List lists the files of a directory that an agent would read, in the order of their names. If the
// path is not a directory, it is the only entry.
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

// ReadManifest reads a manifest that a user named: a file, a named pipe, or [Stdin]. It follows
// symbolic links to any place. If the data is larger than MaxManifest, it reads only enough to
// detect that.
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
	owners  *Claims
	pods    []*v1.Pod // the accepted pods
	// objects has the accepted objects, without their versions.
	objects map[key]bool
}

// missing returns a warning for each ConfigMap and Secret that an accepted pod needs and that no
// path has.
func (c *checker) missing(uid types.UID) []string {
	var out []string
	for _, pod := range c.pods {
		if pod.UID != uid {
			continue
		}
		told := map[key]bool{}
		for ref := range References(&pod.Spec) {
			k := key{kind: ref.Kind, namespace: pod.Namespace, name: ref.Name}
			if ref.Kind != objects.KindConfigMap && ref.Kind != objects.KindSecret || ref.Optional || c.objects[k] || told[k] {
				continue
			}
			told[k] = true
			out = append(out, fmt.Sprintf("%s: no file given here has the %s %s/%s", ref.Path, ref.Kind, pod.Namespace,
				ref.Name))
		}
	}
	return out
}

func newChecker(decoder Decoder) *checker {
	return &checker{
		decoder: decoder, owners: NewClaims(), objects: map[key]bool{},
	}
}

// path returns the results of a file, a directory or a stream.
func (c *checker) path(path string, stdin io.Reader) []Result {
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
		return []Result{unreadable(path, bare(err))}
	}
	defer dir.close()
	out := c.file(dir, filepath.Base(path), path)
	if hint := NameHint(path); hint != "" && info != nil && info.Mode().IsRegular() {
		out = append(out, Result{File: path, Accepted: true, Warnings: []string{hint}})
	}
	return out
}

// stream returns the results of a path that can be read only once.
func (c *checker) stream(file, path string, stdin io.Reader) []Result {
	data, err := ReadManifest(path, stdin)
	if err != nil {
		return []Result{unreadable(file, err)}
	}
	return c.data(file, data)
}

// directory returns the results of the files that an agent reads in a directory.
func (c *checker) directory(path string) []Result {
	dir, err := openDirectory(path)
	if err != nil {
		return []Result{unreadable(path, bare(err))}
	}
	defer dir.close()
	names, err := dir.names()
	if err != nil {
		return []Result{unreadable(path, bare(err))}
	}
	slices.Sort(names)
	var out []Result
	for _, name := range names {
		out = append(out, c.file(dir, name, filepath.Join(path, name))...)
	}
	if len(out) == 0 {
		out = []Result{{File: path, Accepted: true, Warnings: []string{"no manifests in " + path}}}
	}
	return out
}

// file returns the results of one file of a directory. It returns none if the name belongs to a
// directory.
func (c *checker) file(dir *directory, name, path string) []Result {
	v, err := dir.read(name, fileID{}, true)
	switch {
	case errors.Is(err, errDirectory):
		return nil
	case err != nil:
		return []Result{unreadable(path, err)}
	}
	return c.data(path, v.data)
}

// data returns the results of one manifest.
func (c *checker) data(file string, data []byte) []Result {
	var out []Result
	for _, item := range c.decoder.Decode(file, data) {
		v := item.Result
		if v.Accepted {
			if conflict := c.owners.Claim(item, file); conflict != "" {
				v.Accepted, v.UID, v.Message = false, "", conflict
			} else if item.Refused != nil {
				v = *item.Refused
			} else if item.Pod != nil {
				v = c.beside(item)
			} else {
				c.objects[key{kind: v.Kind, namespace: v.Namespace, name: v.Name}] = true
			}
		}
		out = append(out, v)
	}
	return out
}

// beside returns the result of a pod that is accepted by itself, after a comparison with the pods
// before it.
func (c *checker) beside(item Item) Result {
	if fault := portFault(&item, c.pods); fault != nil {
		return rejected(item.Result, *several([]Fault{*fault})).Result
	}
	if refused := admit.CheckSecurity(item.Pod, c.decoder.PodSecurity); refused != nil {
		return rejected(item.Result, problem{message: refused.Reason + ": " + refused.Message}).Result
	}
	c.pods = append(c.pods, item.Pod)
	return item.Result
}

// unreadable returns the result of a path that could not be read.
func unreadable(file string, err error) Result {
	if errors.Is(err, fs.ErrNotExist) {
		return Result{File: file, Message: "it does not exist"}
	}
	return Result{File: file, Message: err.Error()}
}
