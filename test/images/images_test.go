package images

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

func testImage(files ...File) Image {
	return Image{Name: "berth.local/test:v1", Config: ocispec.ImageConfig{Cmd: []string{"x"}}, Files: files}
}

func TestWriteIsReproducible(t *testing.T) {
	dir := t.TempDir()
	a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	files := []File{
		{Path: "/d", Mode: os.ModeDir | 0o755},
		{Path: "/d/f", Mode: 0o644, Body: []byte("content")},
		{Path: "/l", Link: "/d/f"},
	}
	if err := Write(a, testImage(files...)); err != nil {
		t.Fatal(err)
	}
	slices.Reverse(files)
	if err := Write(b, testImage(files...)); err != nil {
		t.Fatal(err)
	}
	first, _ := os.ReadFile(a)
	second, _ := os.ReadFile(b)
	if len(first) == 0 || !bytes.Equal(first, second) {
		t.Errorf("two archives of one image differ (%d and %d bytes)", len(first), len(second))
	}
	left, _ := filepath.Glob(filepath.Join(dir, ".image-*"))
	if len(left) > 0 {
		t.Errorf("temporary files left: %v", left)
	}
}

func TestLayerKeepsModesAndLinks(t *testing.T) {
	layer, err := layerOf([]File{
		{Path: "/tmp", Mode: os.ModeDir | os.ModeSticky | 0o777},
		{Path: "/su", Mode: os.ModeSetuid | 0o755, UID: 3, GID: 4},
		{Path: "/link", Link: "/su"},
	})
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]*tar.Header{}
	tr := tar.NewReader(bytes.NewReader(layer))
	for {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		got[h.Name] = h
	}
	if h := got["tmp/"]; h == nil || h.Mode != 0o1777 {
		t.Errorf("tmp/: %+v", h)
	}
	if h := got["su"]; h == nil || h.Mode != 0o4755 || h.Uid != 3 || h.Gid != 4 {
		t.Errorf("su: %+v", h)
	}
	if h := got["link"]; h == nil || h.Typeflag != tar.TypeSymlink || h.Linkname != "/su" {
		t.Errorf("link: %+v", h)
	}
}

func TestSampleSumFollowsItsInputs(t *testing.T) {
	root, err := Root()
	if err != nil {
		t.Fatal(err)
	}
	input := filepath.Join(t.TempDir(), "input")
	s := sample{inputs: []string{input}}
	if _, err := s.sum(root); err == nil {
		t.Error("a missing input has a sum")
	}
	sums := map[string]bool{}
	for _, body := range []string{"one", "two"} {
		if err := os.WriteFile(input, []byte(body), 0o600); err != nil {
			t.Fatal(err)
		}
		sum, err := s.sum(root)
		if err != nil {
			t.Fatal(err)
		}
		sums[sum] = true
	}
	if len(sums) != 2 {
		t.Errorf("changed input, unchanged sum: %v", sums)
	}
}
