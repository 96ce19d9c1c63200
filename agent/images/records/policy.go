package records

import (
	"errors"
	"fmt"
	"strings"

	kubeletconfigv1beta1 "k8s.io/kubelet/config/v1beta1"
)

// Policy says for which images that are on the node a pod must have credentials
// (imagePullCredentialsVerificationPolicy). The zero value verifies all images.
type Policy struct {
	kind    kubeletconfigv1beta1.ImagePullCredentialsVerificationPolicy
	allowed []pattern
}

// pattern is an entry of preloadedImagesVerificationAllowlist: an image without tag, or all images
// below a path.
type pattern struct {
	text   string
	prefix bool
}

// NewPolicy returns the policy of a config. allowlist is used for NeverVerifyAllowlistedImages.
func NewPolicy(kind kubeletconfigv1beta1.ImagePullCredentialsVerificationPolicy, allowlist []string) (Policy, error) {
	p := Policy{kind: kind}
	switch kind {
	case kubeletconfigv1beta1.NeverVerify, kubeletconfigv1beta1.NeverVerifyPreloadedImages,
		kubeletconfigv1beta1.AlwaysVerify:
		return p, nil
	case kubeletconfigv1beta1.NeverVerifyAllowlistedImages:
	default:
		return Policy{}, fmt.Errorf("imagePullCredentialsVerificationPolicy: %q is unknown", kind)
	}
	for i, text := range allowlist {
		entry, err := parsePattern(text)
		if err != nil {
			return Policy{}, fmt.Errorf("preloadedImagesVerificationAllowlist[%d]: %q: %w", i, text, err)
		}
		p.allowed = append(p.allowed, entry)
	}
	return p, nil
}

// parsePattern parses "REGISTRY/PATH/IMAGE", or "REGISTRY/PATH/*" for all images below a path.
func parsePattern(text string) (pattern, error) {
	if prefix, ok := strings.CutSuffix(text, "*"); ok {
		if !strings.HasSuffix(prefix, "/") || prefix == "/" || strings.ContainsAny(prefix, "* \t\n") {
			return pattern{}, errors.New("want a registry, perhaps a path, and /* at the end")
		}
		return pattern{text: prefix, prefix: true}, nil
	}
	repository, err := repositoryOf(text)
	switch {
	case err != nil:
		return pattern{}, err
	case repository != text:
		return pattern{}, errors.New("want an image without tag and digest")
	}
	return pattern{text: text}, nil
}

// Verify reports whether a pod must have credentials for an image that is on the node. pulled says
// that an agent of this node pulled the image.
func (p Policy) Verify(image string, pulled bool) bool {
	switch p.kind {
	case kubeletconfigv1beta1.NeverVerify:
		return false
	case kubeletconfigv1beta1.NeverVerifyPreloadedImages:
		return pulled
	}
	repository, err := repositoryOf(image)
	if err != nil {
		return true
	}
	for _, entry := range p.allowed {
		if repository == entry.text || entry.prefix && strings.HasPrefix(repository, entry.text) {
			return false
		}
	}
	return true
}
