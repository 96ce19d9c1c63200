package records

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func TestPrune(t *testing.T) {
	n := newNode(t, preloaded)
	n.pull("r.io/here:1", imageID)
	n.pull("r.io/gone:1", "sha256:gone")
	n.pull("r.io/digest:1", "r.io/digest@sha256:45")
	garbage := filepath.Join(n.root, "image_manager", "pulled", fileName("garbage"))
	if err := os.WriteFile(garbage, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := n.Begin("r.io/coming:1"); err != nil {
		t.Fatal(err)
	}
	want := func(when string, ids ...string) {
		t.Helper()
		var names []string
		for _, id := range append(ids, "garbage") {
			names = append(names, fileName(id))
		}
		slices.Sort(names)
		if got := n.files("pulled"); !slices.Equal(got, names) {
			t.Errorf("%s: %v are left, want %v", when, got, names)
		}
	}
	there := []*runtimeapi.Image{
		{Id: imageID, RepoTags: []string{"r.io/here:1"}},
		{Id: "sha256:67", RepoDigests: []string{"r.io/digest@sha256:45"}},
	}
	later := time.Now().Add(time.Minute)
	n.Prune(nil, later)
	want("a runtime without any image", imageID, "sha256:gone", "r.io/digest@sha256:45")
	n.Prune(there, time.Now().Add(-time.Minute))
	want("a list that is older than the records", imageID, "sha256:gone", "r.io/digest@sha256:45")
	n.Prune(there, later)
	want("one is gone", imageID, "r.io/digest@sha256:45")
	if len(n.files("pulling")) != 1 {
		t.Errorf("pulls under way: %v", n.files("pulling"))
	}
	n.wantAllowed(true, "r.io/here:1")
	newNode(t, preloaded).Prune(there, later) // nothing was ever pulled
}
