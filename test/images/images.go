// Package images makes the sample container images that the tests, the benchmark and "make run"
// use, without a registry.
//
// Purpose: three OCI image archives that a runtime can import: [Pause], [Busybox] and [Web]. They
// are built from files of this checkout and from the host's static busybox. A test that needs an
// image of its own describes it with [Image] and writes it with [Write].
//
// Truth owned: the names of the sample images, and their content. The archives are in the
// checkout's .cache/images.
//
// Concurrency: [Build] takes a lock file, so that test binaries that run at the same time build
// once. [Write] has no effect except the file that it writes.
package images

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// The sample images. Nobody can pull them, because their host is not a registry. So a pod that uses
// one proves that the image was imported.
const (
	// Pause holds one process that waits for a signal and reaps orphans. It is a sandbox's first
	// process.
	Pause = "berth.local/pause:v1"
	// Busybox is the host's static busybox with all its applets and a few usual users.
	Busybox = "berth.local/busybox:v1"
	// Web is testapp: an HTTP and gRPC server, and small commands for probes, hooks, signals and
	// failures. Its entrypoint is /testapp.
	Web = "berth.local/web:v1"
)

// Archive is one built image.
type Archive struct {
	// Name is the image's reference.
	Name string
	// Path is the OCI archive's file.
	Path string
}

// modulePath is the first line of the go.mod by which [Root] recognises the checkout.
const modulePath = "module github.com/berthd/berth\n"

// Root returns the checkout that contains the working directory.
func Root() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("find the working directory: %w", err)
	}
	for d := dir; ; d = filepath.Dir(d) {
		if mod, err := os.ReadFile(filepath.Join(d, "go.mod")); err == nil &&
			strings.HasPrefix(string(mod), modulePath) {
			return d, nil
		}
		if d == filepath.Dir(d) {
			return "", fmt.Errorf("find the checkout: no go.mod of berth in %s or above it", dir)
		}
	}
}

// Build makes the sample images of the checkout at root that are missing or older than their
// inputs, and returns all of them. It needs the go command and a static busybox (Debian's
// busybox-static) on the host.
func Build(ctx context.Context, root string) ([]Archive, error) { return build(ctx, root, samples()) }

func build(ctx context.Context, root string, all []sample) ([]Archive, error) {
	cache := filepath.Join(root, ".cache", "images")
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return nil, fmt.Errorf("make the image cache: %w", err)
	}
	unlock, err := lock(filepath.Join(cache, ".lock"))
	if err != nil {
		return nil, err
	}
	defer unlock()

	archives := make([]Archive, 0, len(all))
	for _, s := range all {
		path := filepath.Join(cache, s.file)
		if err := s.ensure(ctx, root, path); err != nil {
			return nil, fmt.Errorf("build image %s: %w", s.name, err)
		}
		archives = append(archives, Archive{Name: s.name, Path: path})
	}
	return archives, nil
}

// ensure builds the archive at path again, unless the sum beside it is the sum of the sample's
// inputs.
func (s sample) ensure(ctx context.Context, root, path string) error {
	want, err := s.sum(root)
	if err != nil {
		return err
	}
	stamp := path + ".sum"
	have, err := os.ReadFile(stamp)
	if _, statErr := os.Stat(path); err == nil && statErr == nil && string(have) == want {
		return nil
	}
	image, err := s.image(ctx, root)
	if err != nil {
		return err
	}
	if err := Write(path, image); err != nil {
		return err
	}
	if err := os.WriteFile(stamp, []byte(want), 0o644); err != nil {
		return fmt.Errorf("write the stamp of %s: %w", path, err)
	}
	return nil
}

// sum hashes everything from which the image is made: the files and folders of the sample's inputs
// (absolute, or in the checkout), the code of this package, and the Go release and platform that
// compile it.
func (s sample) sum(root string) (string, error) {
	h := sha256.New()
	fmt.Fprintln(h, runtime.Version(), runtime.GOOS, runtime.GOARCH)
	code := []string{"test/images/oci.go", "test/images/samples.go", "test/images/services.go"}
	for _, input := range append(code, s.inputs...) {
		if !filepath.IsAbs(input) {
			input = filepath.Join(root, input)
		}
		if err := hashTree(h, input); err != nil {
			return "", err
		}
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

func hashTree(h io.Writer, path string) error {
	return filepath.WalkDir(path, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		f, err := os.Open(p)
		if err != nil {
			return fmt.Errorf("hash %s: %w", p, err)
		}
		defer f.Close()
		fmt.Fprintln(h, p)
		if _, err := io.Copy(h, f); err != nil {
			return fmt.Errorf("hash %s: %w", p, err)
		}
		return nil
	})
}

// lock waits for an exclusive lock on the file at path. It returns a function that frees the lock.
func lock(path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open lock file %s: %w", path, err)
	}
	for {
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return func() { f.Close() }, nil
}
