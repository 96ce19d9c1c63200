package images

import (
	"strings"
	"testing"

	"github.com/containerd/containerd/v2/core/images"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

func TestMatch(t *testing.T) {
	one, two := digest.FromString("one"), digest.FromString("two")
	found := map[digest.Digest]*image{}
	for id, names := range map[digest.Digest][]string{
		one: {"docker.io/library/busybox:latest", "docker.io/library/busybox@" + two.String()},
		two: {"r.example:5000/app:v1"},
	} {
		img := &image{facts: facts{id: id}}
		for _, n := range names {
			img.add(images.Image{Name: n})
		}
		found[id] = img
	}
	for name, want := range map[string]digest.Digest{
		"busybox":                          one,
		"busybox:latest":                   one,
		"docker.io/library/busybox:latest": one,
		"busybox@" + two.String():          one,
		"busybox:v9@" + two.String():       one, // the digest decides
		"busybox:v9":                       "",
		"r.example:5000/app:v1":            two,
		one.String():                       one,
		one.Encoded():                      one,
		two.Encoded()[:12]:                 two,
		"sha256:" + two.Encoded()[:12]:     two,
		two.Encoded()[:minIDPrefix-1]:      "",
		"":                                 "",
		"no such":                          "",
	} {
		var got digest.Digest
		if img := match(found, name); img != nil {
			got = img.id
		}
		if got != want {
			t.Errorf("%q is %s, want %s", name, got, want)
		}
	}
	// The beginning of two IDs names neither.
	shared := digest.NewDigestFromEncoded(digest.SHA256, one.Encoded()[:20]+strings.Repeat("0", 44))
	found[shared] = &image{facts: facts{id: shared}}
	if img := match(found, one.Encoded()[:20]); img != nil {
		t.Errorf("an ambiguous beginning is %s", img.id)
	}
}

func TestUser(t *testing.T) {
	for user, want := range map[string]struct {
		uid  int64
		name string
	}{"": {0, ""}, "1000": {1000, ""}, "1000:50": {1000, ""}, "nobody": {-1, "nobody"}, "web:www": {-1, "web"}} {
		got := (&image{facts: facts{settings: ocispec.ImageConfig{User: user}}}).message()
		uid := int64(-1)
		if got.Uid != nil {
			uid = got.Uid.Value
		}
		if uid != want.uid || got.Username != want.name {
			t.Errorf("user %q is %d and %q, want %d and %q", user, uid, got.Username, want.uid, want.name)
		}
	}
}
