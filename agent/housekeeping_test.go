package agent

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/berthd/berth/cri/fake"
)

// Of pods that nobody knows, those go that have a directory here. Others may be another agent's, which has made their cgroup and not yet their sandbox.
func TestPruneLeavesOthersPodsAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		own := filepath.Join(dir, "root", "pods", "own")
		if err := os.MkdirAll(own, 0o750); err != nil {
			t.Fatal(err)
		}
		var removed []types.UID
		cgroups := noCgroups{removed: func(uid types.UID) { removed = append(removed, uid) }}
		_, end := liveWith(t, dir, fake.New(fake.Config{}), manifest(""), Deps{Cgroups: cgroups}, nil)
		time.Sleep(2 * housekeepingPeriod)
		end()
		if !slices.Equal(slices.Compact(removed), []types.UID{"own"}) {
			t.Errorf("removed the cgroups of %v, want that of the pod with a directory", removed)
		}
		if _, err := os.Stat(own); !os.IsNotExist(err) {
			t.Errorf("the directory of the pod is still there: %v", err)
		}
	})
}
