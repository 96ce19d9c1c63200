//go:build integration

package images

import (
	"path/filepath"
	"testing"

	"github.com/berthd/berth/test/env"
	"github.com/berthd/berth/test/images"
)

// TestImportTakesTheNameOver imports two archives of the same name, as somebody does who builds an
// image again and again. The first image stays, by its ID, until it is removed: a container may
// have it. It is not pinned any more.
func TestImportTakesTheNameOver(t *testing.T) {
	t.Parallel()
	s := newStore(t, env.Containerd(t, env.Options{}), "images-rebuilt")
	const name = "berth.local/rebuilt:v1"
	var ids []string
	for _, content := range []string{"one", "two", "two"} {
		path := filepath.Join(t.TempDir(), "rebuilt.tar")
		built := images.Image{Name: name, Files: []images.File{{Path: "/app", Mode: 0o755, Body: []byte(content)}}}
		if err := images.Write(path, built); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Import(t.Context(), path); err != nil {
			t.Fatal(err)
		}
		ids = append(ids, s.status(name).GetId())
	}
	first, second := ids[0], ids[1]
	if first == second || second != ids[2] {
		t.Fatalf("the images are %q", ids)
	}
	if img := s.status(first); img == nil || len(img.RepoTags) > 0 || img.Pinned {
		t.Errorf("the first image is %v", img)
	}
	if img := s.status(second); img == nil || len(img.RepoTags) != 1 || !img.Pinned {
		t.Errorf("the second image is %v", img)
	}
	s.remove(first)
	if img := s.status(first); img != nil {
		t.Errorf("removed, the first image is %v", img)
	}
	s.remove(name)
	if list, err := s.ListImages(t.Context()); err != nil || len(list) > 0 {
		t.Errorf("left: %v, %v", list, err)
	}
}
