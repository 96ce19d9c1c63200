package store

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/distribution/reference"

	"github.com/berthd/berth/cri/internal/classify"
)

// As says how images are imported.
type As struct {
	// Snapshotter returns the name of the snapshotter that unpacks them; "" is containerd's default.
	Snapshotter func(context.Context) string
	// Labels are the labels of their names.
	Labels map[string]string
}

// Import loads the images of the archive at a path into the namespace of the context, and unpacks
// them. It returns errdefs.IsInvalidArgument if no image in the archive has a full name.
func Import(ctx context.Context, containerd *client.Client, path string, as As) (_ []images.Image, err error) {
	archive, err := openArchive(path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, archive.Close()) }()
	imported, err := containerd.Import(ctx, archive, client.WithImageRefTranslator(fullName),
		client.WithImageLabels(as.Labels))
	if err != nil {
		return nil, classify.Error("import_image", err)
	}
	if len(imported) == 0 {
		return nil, classify.Invalidf("no image in it has a name")
	}
	snapshotter := as.Snapshotter(ctx)
	for _, image := range imported {
		if err := client.NewImage(containerd, image).Unpack(ctx, snapshotter); err != nil {
			return nil, fmt.Errorf("unpack %s: %w", image.Name, classify.Error("import_image", err))
		}
	}
	return imported, nil
}

// fullName translates the name that an OCI layout gives an image. A bare tag such as "latest" does
// not name an image.
func fullName(name string) string {
	if !strings.ContainsAny(name, "/:") {
		return ""
	}
	named, err := reference.ParseDockerRef(name)
	if err != nil {
		return ""
	}
	return named.String()
}

// archive is an open image archive.
type archive struct {
	io.Reader
	closers []io.Closer // in the order of closing
}

// Close closes the archive's file.
func (a *archive) Close() error {
	var errs []error
	for _, c := range a.closers {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}

// openArchive opens a tar file. It unzips the file if the content is gzip.
func openArchive(path string) (*archive, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	buffered := bufio.NewReaderSize(file, 64<<10)
	head, err := buffered.Peek(2)
	if err != nil {
		return nil, errors.Join(classify.Invalidf("not an image archive: %v", err), file.Close())
	}
	if !bytes.Equal(head, []byte{0x1f, 0x8b}) {
		return &archive{Reader: buffered, closers: []io.Closer{file}}, nil
	}
	unzipped, err := gzip.NewReader(buffered)
	if err != nil {
		return nil, errors.Join(classify.Invalidf("not an image archive: %v", err), file.Close())
	}
	return &archive{Reader: unzipped, closers: []io.Closer{unzipped, file}}, nil
}
