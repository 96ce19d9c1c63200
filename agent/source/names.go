package source

import (
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
