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
