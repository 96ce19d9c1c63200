package source

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// Validate gives the verdicts that an agent on node nodeName would give about manifest files and directories, without an agent. All paths together are one set: an
// object that is in two of them is a duplicate. A directory's verdict about its owner is not given, since the files may be meant for another place.
func Validate(nodeName string, paths ...string) []Verdict {
	decoder := Decoder{NodeName: nodeName}
	owners := &claims{keys: map[key]string{}, uids: map[string]string{}}
	var out []Verdict
	for _, path := range paths {
		files, err := manifestFiles(path)
		if err != nil {
			out = append(out, Verdict{File: path, Message: bare(err).Error()})
			continue
		}
		for _, file := range files {
			out = append(out, validateFile(decoder, owners, file)...)
		}
	}
	return out
}

// manifestFiles lists the manifests of a path: of a directory those that an agent reads, else the file itself.
func manifestFiles(path string) ([]string, error) {
	info, err := os.Stat(path)
	if err != nil || !info.IsDir() {
		return []string{path}, err
	}
	dir, err := openDirectory(path)
	if err != nil {
		return nil, err
	}
	defer dir.close()
	names, err := dir.names()
	if err != nil {
		return nil, err
	}
	slices.Sort(names)
	files := make([]string, 0, len(names))
	for _, name := range names {
		files = append(files, filepath.Join(path, name))
	}
	return files, nil
}

// validateFile gives the verdicts about one file.
func validateFile(decoder Decoder, owners *claims, file string) []Verdict {
	data, err := readManifest(file)
	if err != nil {
		return []Verdict{{File: file, Message: err.Error()}}
	}
	var out []Verdict
	for _, item := range decoder.Decode(file, data) {
		v := item.Verdict
		if v.Accepted {
			if conflict := owners.claim(item, file); conflict != "" {
				v.Accepted, v.UID, v.Message = false, "", conflict
			}
		}
		out = append(out, v)
	}
	return out
}

// readManifest reads one file as an agent does, except that a link may lead anywhere: the user named the file.
func readManifest(file string) ([]byte, error) {
	real, err := filepath.EvalSymlinks(file)
	if err != nil {
		return nil, bare(err)
	}
	dir, err := openDirectory(filepath.Dir(real))
	if err != nil {
		return nil, bare(err)
	}
	defer dir.close()
	v, err := dir.read(filepath.Base(real), fileID{}, true)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errors.New("it does not exist")
	}
	if err != nil {
		return nil, err
	}
	return v.data, nil
}
