package records

import (
	"errors"
	"fmt"
	"strings"

	kubeletconfigv1beta1 "k8s.io/kubelet/config/v1beta1"
)

// Policy says of which images that are on the node a pod has to show that it may have them (imagePullCredentialsVerificationPolicy). The zero value
// verifies all.
type Policy struct {
	kind    kubeletconfigv1beta1.ImagePullCredentialsVerificationPolicy
	allowed []pattern
}

// pattern is an entry of preloadedImagesVerificationAllowlist: an image without tag, or all below a path.
type pattern struct {
	text   string
	prefix bool
}

// NewPolicy returns the policy of a config; allowlist counts for NeverVerifyAllowlistedImages.
func NewPolicy(kind kubeletconfigv1beta1.ImagePullCredentialsVerificationPolicy, allowlist []string) (Policy, error) {
	p := Policy{kind: kind}
	switch kind {
	case kubeletconfigv1beta1.NeverVerify, kubeletconfigv1beta1.NeverVerifyPreloadedImages, kubeletconfigv1beta1.AlwaysVerify:
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

// parsePattern reads "REGISTRY/PATH/IMAGE", or "REGISTRY/PATH/*" for all below it.
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

// Verify says whether a pod has to show credentials for an image that is there; pulled says that an agent of this node pulled it.
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
