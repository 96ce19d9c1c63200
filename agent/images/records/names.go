package records

import (
	"fmt"
	"strings"

	"github.com/distribution/reference"
)

// fullName returns the name that a runtime gives an image. An invalid name stays as it is.
func fullName(image string) string {
	named, err := reference.ParseDockerRef(image)
	if err != nil {
		return image
	}
	return named.String()
}

// repositoryOf returns the image as it is written, without tag and digest. Records have credentials
// under this name.
func repositoryOf(image string) (string, error) {
	ref, err := reference.Parse(image)
	if err != nil {
		return "", err
	}
	out := image
	if d, ok := ref.(reference.Digested); ok {
		out = strings.TrimSuffix(out, "@"+d.Digest().String())
	}
	if t, ok := ref.(reference.Tagged); ok {
		out = strings.TrimSuffix(out, ":"+t.Tag())
	}
	if out == "" {
		return "", fmt.Errorf("%q names no image", image)
	}
	return out, nil
}

// sameRepository reports whether two images, without tag and digest, are of one repository:
// "busybox" and "docker.io/library/busybox" are.
func sameRepository(a, b string) bool {
	if a == b {
		return true
	}
	left, err := reference.ParseNormalizedNamed(a)
	if err != nil {
		return false
	}
	right, err := reference.ParseNormalizedNamed(b)
	return err == nil && left.Name() == right.Name()
}
