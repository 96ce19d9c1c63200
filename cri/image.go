package cri

import runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

// Image is what a container's config needs of its image. Ask the runtime again for each creation: a
// restart must not lose the image's user (CVE-2019-11245).
type Image struct {
	// Ref is the image's reference in the runtime, as the pull returned it.
	Ref string
	// UID is the image's numeric user. Nil if the user is a name, or missing.
	UID *int64
	// Username is the image's user if it is not a number.
	Username string
}

// ImageOf returns what the runtime reports of an image, whose reference is ref.
func ImageOf(ref string, image *runtimeapi.Image) Image {
	out := Image{Ref: ref}
	switch {
	case image == nil:
	case image.Uid != nil:
		uid := image.Uid.Value
		out.UID = &uid
	default:
		out.Username = image.Username
	}
	return out
}
