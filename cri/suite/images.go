package suite

import (
	"slices"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// missingImage is in a registry that never exists: port 1 of the host itself.
const missingImage = "127.0.0.1:1/suite/missing:v1"

func images(b *bench) {
	image, err := b.Runtime.ImageStatus(b.ctx, &runtimeapi.ImageSpec{Image: b.Image})
	b.ok(err, "status of image")
	if image == nil {
		b.Fatalf("image %s is not there", b.Image)
	}
	if image.GetId() == "" || !slices.Contains(image.GetRepoTags(), b.Image) {
		b.Errorf("image is %v, want an id and the tag %s", image, b.Image)
	}
	byID, err := b.Runtime.ImageStatus(b.ctx, &runtimeapi.ImageSpec{Image: image.GetId()})
	b.ok(err, "status of image by id")
	if byID.GetId() != image.GetId() {
		b.Errorf("image by id is %v, want %v", byID, image)
	}
	list, err := b.Runtime.ListImages(b.ctx)
	b.ok(err, "list images")
	if !slices.ContainsFunc(list, func(i *runtimeapi.Image) bool { return i.GetId() == image.GetId() }) {
		b.Errorf("the list of %d images lacks %s", len(list), b.Image)
	}
	missing, err := b.Runtime.ImageStatus(b.ctx, &runtimeapi.ImageSpec{Image: missingImage})
	if err != nil || missing != nil {
		b.Errorf("status of a missing image is %v and error %v, want neither", missing, err)
	}
	b.ok(b.Runtime.RemoveImage(b.ctx, &runtimeapi.ImageSpec{Image: missingImage}), "remove a missing image")
	if _, err := b.Runtime.ImageFsInfo(b.ctx); err != nil {
		b.Errorf("image filesystem: %v", err)
	}
}

func pullFails(b *bench) {
	ref, err := b.Runtime.PullImage(b.ctx, &runtimeapi.ImageSpec{Image: missingImage}, nil, nil)
	if err == nil {
		b.Errorf("pulling %s gave %q", missingImage, ref)
	}
}

func pull(b *bench) {
	if b.PullImage == "" {
		b.Skip("the target has no image to pull")
	}
	spec := &runtimeapi.ImageSpec{Image: b.PullImage}
	ref, err := b.Runtime.PullImage(b.ctx, spec, nil, nil)
	b.ok(err, "pull image")
	b.Cleanup(func() {
		if err := b.Runtime.RemoveImage(b.ctx, spec); err != nil {
			b.Errorf("clean up: remove image: %v", err)
		}
	})
	image, err := b.Runtime.ImageStatus(b.ctx, &runtimeapi.ImageSpec{Image: ref})
	b.ok(err, "status of image")
	if image == nil {
		b.Fatalf("%s, as which %s was pulled, is not there", ref, b.PullImage)
	}
	for range 2 {
		b.ok(b.Runtime.RemoveImage(b.ctx, spec), "remove image")
	}
	image, err = b.Runtime.ImageStatus(b.ctx, spec)
	if err != nil || image != nil {
		b.Errorf("status of a removed image is %v and error %v, want neither", image, err)
	}
}
