package source

import (
	"os"
	"path/filepath"
	"strings"
)

// isManifestName reports whether the source reads a file of this name in a manifest directory. The
// name ends in .yaml, .yml or .json, and is not a temporary file of an editor or a package manager.
// Editors make .x.swp, .#x, #x#, x~ and 4913; isManifestName refuses all of them.
func isManifestName(name string) bool {
	if name == "" || strings.HasPrefix(name, ".") || strings.HasPrefix(name, "#") || strings.HasSuffix(name, "~") {
		return false
	}
	switch strings.ToLower(filepath.Ext(name)) {
	case ".yaml", ".yml", ".json":
		return true
	default:
		return false
	}
}

// NameHint says why an agent would not read a file of this name in its manifest directory. It is
// for commands that check manifests. It returns "" if the agent would read the file.
func NameHint(path string) string {
	if name := filepath.Base(path); path == Stdin || isManifestName(name) {
		return ""
	}
	return `the agent would not read it in its manifest directory: only names that end in .yaml, .yml or .json, do ` +
		`not begin with "." or "#" and do not end in "~"`
}

// Ignored is a file of a manifest directory that the source does not read, and why.
type Ignored struct{ Path, Why string }

// IgnoredIn lists what the source does not read in a manifest directory, by name. What a kubelet
// puts beside the files of a ConfigMap volume, whose names begin with "..", is left out. The list
// is empty if the path is not a directory, or cannot be read.
func IgnoredIn(path string) []Ignored {
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil // the source's own results say so
	}
	var out []Ignored
	for _, e := range entries {
		name := e.Name()
		why := ""
		switch {
		case strings.HasPrefix(name, ".."):
		case e.IsDir():
			why = "it is a directory: manifests in directories below are not read"
		case isManifestName(name):
		case strings.HasPrefix(name, "."), strings.HasPrefix(name, "#"), strings.HasSuffix(name, "~"):
			why = "its name is that of a hidden or temporary file"
		default:
			why = "its name does not end in .yaml, .yml or .json"
		}
		if why != "" {
			out = append(out, Ignored{Path: filepath.Join(path, name), Why: why})
		}
	}
	return out
}
