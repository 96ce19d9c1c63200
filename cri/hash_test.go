package cri_test

import (
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/berthd/berth/cri"
)

// The hashes were computed with the kubelet's own algorithm, release 1.36. The kubelet's test pins
// the first one, too.
func TestContainerHashIsTheKubelets(t *testing.T) {
	for _, c := range []struct{ name, image, want string }{
		{"test_container", "foo/image:v1", "8e45cbd0"},
		{"nginx", "docker.io/library/nginx:1.27", "96d3bc94"},
		{"", "", "edd67cc4"},
		{"a", "b<&>\u2028é\xff", "e9c5a5d5"},
		{"web", "registry.example/app@sha256:abc", "6e4a2eae"},
	} {
		got := cri.ContainerHash(&v1.Container{
			Name:  c.name,
			Image: c.image,
			Args:  []string{"not hashed"},
			Env:   []v1.EnvVar{{Name: "A"}},
		})
		if got != c.want {
			t.Errorf("hash of %q from %q is %s, want %s", c.name, c.image, got, c.want)
		}
	}
}
