package plugins

import (
	"io/fs"
	"syscall"
)

// identify returns what tells a socket from another of the same name.
func identify(info fs.FileInfo) identity {
	id := identity{modified: info.ModTime()}
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		id.inode = stat.Ino
	}
	return id
}
