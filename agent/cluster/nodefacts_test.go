package cluster

import (
	"fmt"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func TestNodeImages(t *testing.T) {
	images := []*runtimeapi.Image{
		{Size: 1, RepoTags: []string{"small:1"}},
		{Size: 9, RepoDigests: []string{"big@a", "big@b"}, RepoTags: []string{"big:1", "big:2", "big:3", "big:4"}},
		{Size: 5, RepoTags: []string{"b"}},
		{Size: 5, RepoTags: []string{"a"}},
	}
	for most, want := range map[int]string{
		0: "[]", 1: "[{[big@a big@b big:1 big:2 big:3] 9}]", 3: "[{[big@a big@b big:1 big:2 big:3] 9} {[a] 5} {[b] 5}]",
		-1: "[{[big@a big@b big:1 big:2 big:3] 9} {[a] 5} {[b] 5} {[small:1] 1}]",
	} {
		if got := fmt.Sprint(nodeImages(images, most)); got != want {
			t.Errorf("at most %d: %s, want %s", most, got, want)
		}
	}
}

func TestRuntimeHandlersOfANode(t *testing.T) {
	got := runtimeHandlers([]*runtimeapi.RuntimeHandler{
		{Name: "runc", Features: &runtimeapi.RuntimeHandlerFeatures{UserNamespaces: true}}, {Name: ""},
	})
	if len(got) != 2 || got[0].Name != "" || *got[0].Features.UserNamespaces || !*got[1].Features.UserNamespaces ||
		*got[1].Features.RecursiveReadOnlyMounts {
		t.Errorf("%+v", got)
	}
}
