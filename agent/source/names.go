package source

import (
	"path/filepath"
	"strings"
)

// isManifestName reports whether a file of a manifest directory is read: it ends in .yaml, .yml or .json and is not an editor's or a package manager's
// temporary file. Editors make .x.swp, .#x, #x#, x~ and 4913; none of them ever counts.
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

// NameHint says of a file's name that is given to those who check manifests, and that an agent would not read in its manifest directory, why not; empty for others.
func NameHint(path string) string {
	if name := filepath.Base(path); path == Stdin || isManifestName(name) {
		return ""
	}
	return `the agent would not read it in its manifest directory: only names that end in .yaml, .yml or .json, do not begin with "." or "#" and do not end in "~"`
}
