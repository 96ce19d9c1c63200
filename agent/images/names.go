package images

import (
	"fmt"
	"strings"

	"github.com/distribution/reference"
	v1 "k8s.io/api/core/v1"
)

// FullName returns the name under which a runtime files an image, "docker.io/library/busybox:latest" for "busybox"; a name with both tag
// and digest is filed by its digest. An error says what is wrong with the name.
func FullName(image string) (string, error) {
	named, err := reference.ParseDockerRef(image)
	if err != nil {
		return "", fmt.Errorf("couldn't parse image name %q: %w", image, err)
	}
	return named.String(), nil
}

// withTag returns the image as it was written, with the default tag where it has neither tag nor digest. Runtimes get this one, so
// that one with rules of its own for short names can apply them.
func withTag(image string) string {
	named, err := reference.ParseNormalizedNamed(image)
	if err == nil && reference.IsNameOnly(named) {
		return image + ":latest"
	}
	return image
}

// registryOf returns the host of a full name.
func registryOf(fullName string) string {
	host, _, _ := strings.Cut(fullName, "/")
	return host
}

// policyOf returns the policy, or where the pod has none the API's default: Always for the tag latest, else IfNotPresent.
func policyOf(policy v1.PullPolicy, fullName string) v1.PullPolicy {
	switch {
	case policy != "":
		return policy
	case strings.HasSuffix(fullName, ":latest"):
		return v1.PullAlways
	default:
		return v1.PullIfNotPresent
	}
}
