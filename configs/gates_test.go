package configs

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	utilfeature "k8s.io/apiserver/pkg/util/feature"

	// This import registers the gates of every component of the linked release.
	_ "k8s.io/kubernetes/pkg/apis/core/validation"
)

// TestKnownGatesAreTheReleases checks that gates.txt has the gates of the linked Kubernetes
// release. With UPDATE_GATES=1 it writes the file.
func TestKnownGatesAreTheReleases(t *testing.T) {
	var want strings.Builder
	all := utilfeature.DefaultMutableFeatureGate.GetAll()
	for _, name := range slices.Sorted(maps.Keys(all)) {
		spec := all[name]
		stage := string(spec.PreRelease)
		switch {
		case name == "AllAlpha" || name == "AllBeta":
			continue
		case stage == "":
			stage = "GA"
		}
		fmt.Fprintf(&want, "%s %t %s", name, spec.Default, stage)
		if spec.LockToDefault {
			want.WriteString(" locked")
		}
		want.WriteString("\n")
	}
	if os.Getenv("UPDATE_GATES") != "" {
		if err := os.WriteFile("gates.txt", []byte(want.String()), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if want.String() != knownGates {
		t.Errorf("gates.txt is not the release's list; run the test with UPDATE_GATES=1 and look at the difference")
	}
}
