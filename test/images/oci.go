package images

import (
	"archive/tar"
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// containerdName is the annotation from which containerd's import takes an image's name.
const containerdName = "io.containerd.image.name"

// Image describes an image of one layer.
type Image struct {
	// Name is the reference under which the image is imported.
	Name string
	// Config is the image's config for running it.
	Config ocispec.ImageConfig
	// Files are the root filesystem, in any order.
	Files []File
	// Architecture is the architecture of the image's programs, as Go spells it; empty for this
	// machine's.
	Architecture string
}

// File is one entry of an image's root filesystem.
type File struct {
	// Path is absolute, without a trailing slash.
	Path string
	// Mode is the permissions with os.ModeDir, os.ModeSetuid or os.ModeSticky. A file with Link is
	// a symbolic link, whatever Mode says.
	Mode os.FileMode
	// Link is what a symbolic link points to.
	Link string
	// Body is a regular file's content.
	Body []byte
	// UID and GID own the entry.
	UID, GID int
}

// blob is one content-addressed file of an OCI layout.
type blob struct {
	desc ocispec.Descriptor
	data []byte
}

// Write writes the image as an OCI archive at path, and replaces an existing file in one step. The
// same image gives the same bytes, on every machine and at any time.
func Write(path string, image Image) error {
	layer, err := layerOf(image.Files)
	if err != nil {
		return fmt.Errorf("make the layer of %s: %w", image.Name, err)
	}
	blobs, err := blobsOf(image, layer)
	if err != nil {
		return fmt.Errorf("describe image %s: %w", image.Name, err)
	}
	tmp, err := os.CreateTemp(filepath.Dir(path), ".image-*")
	if err != nil {
		return fmt.Errorf("create archive of %s: %w", image.Name, err)
	}
	defer os.Remove(tmp.Name())
	if err := writeLayout(tmp, image.Name, blobs); err != nil {
		tmp.Close()
		return fmt.Errorf("write archive of %s: %w", image.Name, err)
	}
	if err := tmp.Close(); err != nil {
		return fmt.Errorf("write archive of %s: %w", image.Name, err)
	}
	if err := os.Rename(tmp.Name(), path); err != nil {
		return fmt.Errorf("put archive of %s in place: %w", image.Name, err)
	}
	return nil
}

// blobsOf returns layer, config and manifest, in this order.
func blobsOf(image Image, layer []byte) ([]blob, error) {
	epoch := time.Unix(0, 0).UTC()
	arch := cmp.Or(image.Architecture, runtime.GOARCH)
	layerBlob := newBlob(ocispec.MediaTypeImageLayer, layer)
	config, err := json.Marshal(ocispec.Image{
		Created:  &epoch,
		Platform: ocispec.Platform{OS: "linux", Architecture: arch},
		Config:   image.Config,
		RootFS:   ocispec.RootFS{Type: "layers", DiffIDs: []digest.Digest{layerBlob.desc.Digest}},
		History:  []ocispec.History{{Created: &epoch, CreatedBy: "berth sample image"}},
	})
	if err != nil {
		return nil, err
	}
	configBlob := newBlob(ocispec.MediaTypeImageConfig, config)
	manifest, err := json.Marshal(ocispec.Manifest{
		Versioned: specs.Versioned{SchemaVersion: 2},
		MediaType: ocispec.MediaTypeImageManifest,
		Config:    configBlob.desc,
		Layers:    []ocispec.Descriptor{layerBlob.desc},
	})
	if err != nil {
		return nil, err
	}
	return []blob{layerBlob, configBlob, newBlob(ocispec.MediaTypeImageManifest, manifest)}, nil
}

func newBlob(mediaType string, data []byte) blob {
	return blob{
		data: data,
		desc: ocispec.Descriptor{MediaType: mediaType, Digest: digest.FromBytes(data), Size: int64(len(data))},
	}
}

func writeLayout(w io.Writer, name string, blobs []blob) error {
	root := blobs[len(blobs)-1].desc
	root.Annotations = map[string]string{containerdName: name}
	index, err := json.Marshal(ocispec.Index{
		Versioned: specs.Versioned{SchemaVersion: 2},
		MediaType: ocispec.MediaTypeImageIndex,
		Manifests: []ocispec.Descriptor{root},
	})
	if err != nil {
		return err
	}
	layout, err := json.Marshal(ocispec.ImageLayout{Version: ocispec.ImageLayoutVersion})
	if err != nil {
		return err
	}
	files := []File{
		{Path: "/" + ocispec.ImageLayoutFile, Mode: 0o644, Body: layout},
		{Path: "/" + ocispec.ImageIndexFile, Mode: 0o644, Body: index},
	}
	for _, b := range blobs {
		files = append(files, File{Path: "/blobs/sha256/" + b.desc.Digest.Encoded(), Mode: 0o644, Body: b.data})
	}
	return writeTar(w, files)
}

// layerOf returns the files as a tar, sorted by path so that folders come before their content.
func layerOf(files []File) ([]byte, error) {
	sorted := slices.Clone(files)
	slices.SortFunc(sorted, func(a, b File) int { return bytes.Compare([]byte(a.Path), []byte(b.Path)) })
	var buf bytes.Buffer
	if err := writeTar(&buf, sorted); err != nil {
		return nil, err
	}
	return buf.Bytes(), nil
}

func writeTar(w io.Writer, files []File) error {
	tw := tar.NewWriter(w)
	for _, f := range files {
		if err := tw.WriteHeader(header(f)); err != nil {
			return fmt.Errorf("write header of %s: %w", f.Path, err)
		}
		if _, err := tw.Write(f.Body); err != nil {
			return fmt.Errorf("write %s: %w", f.Path, err)
		}
	}
	return tw.Close()
}

func header(f File) *tar.Header {
	h := &tar.Header{
		Name: f.Path[1:], Mode: int64(f.Mode.Perm()), Uid: f.UID, Gid: f.GID,
		ModTime: time.Unix(0, 0), Format: tar.FormatPAX, Typeflag: tar.TypeReg,
	}
	// The octal bits are those of chmod(2).
	if f.Mode&os.ModeSetuid != 0 {
		h.Mode |= 0o4000
	}
	if f.Mode&os.ModeSticky != 0 {
		h.Mode |= 0o1000
	}
	switch {
	case f.Link != "":
		h.Typeflag, h.Linkname, h.Mode = tar.TypeSymlink, f.Link, 0o777
	case f.Mode.IsDir():
		h.Typeflag, h.Name = tar.TypeDir, h.Name+"/"
	default:
		h.Size = int64(len(f.Body))
	}
	return h
}
