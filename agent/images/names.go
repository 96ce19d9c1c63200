package images

import (
	"fmt"
	"strings"

	"github.com/distribution/reference"
	v1 "k8s.io/api/core/v1"
)

// FullName returns the name that a runtime gives an image, "docker.io/library/busybox:latest" for
// "busybox". If a name has a tag and a digest, the full name has only the digest. The error says
// what is wrong with the name.
func FullName(image string) (string, error) {
	named, err := reference.ParseDockerRef(image)
	if err != nil {
		return "", fmt.Errorf("couldn't parse image name %q: %w", image, err)
	}
	return named.String(), nil
}

// withTag returns the image as it was written, with the default tag if it has neither a tag nor a
// digest. The runtime gets this name, so that it can apply its own rules for short names.
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

// policyOf returns the pod's policy. If it is empty, policyOf returns the API's default: Always for
// the tag latest, otherwise IfNotPresent.
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
