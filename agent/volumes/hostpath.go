package volumes

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
)

// The modes of what DirectoryOrCreate and FileOrCreate create, as the API documents them.
const (
	hostDirMode  = 0o755
	hostFileMode = 0o644
)

// hostPath is checkHostPath without a wait for a file system that does not answer.
func (b *bringUp) hostPath(source *v1.HostPathVolumeSource) error {
	if b.dynamic.Brief == nil || source.Type == nil || *source.Type == v1.HostPathUnset {
		return checkHostPath(b.ctx, source)
	}
	err := b.dynamic.Brief("hostPath/"+source.Path, source.Path, func(ctx context.Context) error {
		return checkHostPath(ctx, source)
	})
	if errors.Is(err, ErrUnderWay) {
		return fmt.Errorf("hostPath type check of %s: %w", source.Path, err)
	}
	return err
}

// checkHostPath makes sure that a hostPath is what its type says. It creates the path if the type
// says so, unless ctx has ended. An existing path is not changed.
func checkHostPath(ctx context.Context, source *v1.HostPathVolumeSource) error {
	if slices.Contains(strings.Split(source.Path, "/"), "..") {
		return fmt.Errorf("invalid HostPath `%s`: must not contain '..'", source.Path)
	}
	kind := v1.HostPathUnset
	if source.Type != nil {
		kind = *source.Type
	}
	switch kind {
	case v1.HostPathUnset:
		return nil
	case v1.HostPathDirectoryOrCreate:
		return createOrCheck(ctx, source.Path, "a directory", fs.FileMode.IsDir, func() error {
			return os.MkdirAll(source.Path, hostDirMode)
		})
	case v1.HostPathDirectory:
		return checkType(source.Path, "a directory", fs.FileMode.IsDir)
	case v1.HostPathFileOrCreate:
		return createOrCheck(ctx, source.Path, "a file", fs.FileMode.IsRegular, func() error {
			return createFile(source.Path)
		})
	case v1.HostPathFile:
		return checkType(source.Path, "a file", fs.FileMode.IsRegular)
	case v1.HostPathSocket:
		return checkType(source.Path, "a socket file", func(m fs.FileMode) bool { return m.Type() == fs.ModeSocket })
	case v1.HostPathCharDev:
		return checkType(source.Path, "a character device", func(m fs.FileMode) bool {
			return m.Type() == fs.ModeDevice|fs.ModeCharDevice
		})
	case v1.HostPathBlockDev:
		return checkType(source.Path, "a block device", func(m fs.FileMode) bool { return m.Type() == fs.ModeDevice })
	}
	return unsupported("%s is an invalid volume type", kind)
}

func checkType(path, what string, is func(fs.FileMode) bool) error {
	if info, err := os.Stat(path); err != nil || !is(info.Mode()) {
		return fmt.Errorf("hostPath type check failed: %s is not %s", path, what)
	}
	return nil
}

func createOrCheck(ctx context.Context, path, what string, is func(fs.FileMode) bool, create func() error) error {
	if _, err := os.Stat(path); err != nil {
		if ctx.Err() != nil { // the file system has taken long to answer
			return ctx.Err()
		}
		return create()
	}
	return checkType(path, what, is)
}

func createFile(path string) error {
	// Another pod may have made the file meanwhile, and hold a lease on it.
	file, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|unix.O_NONBLOCK, hostFileMode)
	if err != nil {
		return leased(path, err)
	}
	return file.Close()
}
