package plugins

import (
	"io/fs"
	"syscall"
)

// identify returns the identity of a socket, which distinguishes it from another socket of the same
// name.
func identify(info fs.FileInfo) identity {
	id := identity{modified: info.ModTime()}
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		id.inode = stat.Ino
	}
	return id
}
