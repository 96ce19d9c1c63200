package credentials

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// maxFile limits a config file, in bytes. It is the kubelet's limit for configs that it fetches.
const maxFile = 10 << 20

// Files are the node's docker config files: every pod may use their logins. Only the first file
// that can be read is used. The files are config.json and then .dockercfg, each in the root
// directory, the working directory, the home directory (config.json: in its .docker) and the top of
// the file system, as the kubelet searches them. A file that changed is read again.
type Files struct {
	paths []string
	log   *slog.Logger

	mu    sync.Mutex
	state string // of the files, when they were last read
	ring  *Keyring
}

// NewFiles returns the node's files. root is the agent's root directory, and home is the user's. An
// empty path is left out.
func NewFiles(root, home string, log *slog.Logger) *Files {
	f := &Files{log: log}
	work, _ := os.Getwd()
	for _, name := range []string{"config.json", ".dockercfg"} {
		for _, dir := range []string{root, work, home, "/"} {
			if dir == "" {
				continue
			}
			if name == "config.json" && (dir == home || dir == "/") {
				dir = filepath.Join(dir, ".docker")
			}
			f.paths = append(f.paths, filepath.Join(dir, name))
		}
	}
	return f
}

// Lookup returns the credentials for a repository, the best first.
func (f *Files) Lookup(repository string) []Credential {
	f.mu.Lock()
	defer f.mu.Unlock()
	if state := f.look(); state != f.state || f.ring == nil {
		f.state, f.ring = state, f.read()
	}
	return f.ring.Lookup(repository)
}

// State identifies the content of the files: it changes if one of them changes.
func (f *Files) State() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.look()
}

// look returns the state of all files without reading their content.
func (f *Files) look() string {
	var b strings.Builder
	for i, path := range f.paths {
		if info, err := os.Stat(path); err == nil {
			fmt.Fprintf(&b, "%d:%d:%d ", i, info.Size(), info.ModTime().UnixNano())
		}
	}
	return b.String()
}

// read reads the first file that is a valid config.
func (f *Files) read() *Keyring {
	ring := &Keyring{}
	for _, path := range f.paths {
		config, err := readConfig(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			f.log.Warn("Registry credentials of the node are wrong", "file", path, "err", err)
		}
		if config != nil {
			f.log.Debug("Read the node's registry credentials", "file", path, "registries", len(config))
			ring.Add(Source{}, config)
			break
		}
	}
	return ring
}

func readConfig(path string) (Config, error) {
	// without it, opening a pipe would wait for the other end
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	if info, err := file.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, errors.Join(err, errors.New("it is no regular file"))
	}
	data, err := io.ReadAll(io.LimitReader(file, maxFile+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxFile {
		return nil, fmt.Errorf("it is larger than %d bytes", maxFile)
	}
	if filepath.Base(path) == ".dockercfg" {
		return ParseDockercfg(data)
	}
	return ParseConfigJSON(data)
}
