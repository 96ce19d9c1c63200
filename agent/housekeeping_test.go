package agent

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berthd/berth/agent/source"
	"github.com/berthd/berth/cri/fake"
	"github.com/berthd/berth/internal/mounttable/mounttabletest"
	"github.com/berthd/berth/internal/pods"
)

// Pods that nobody knows are removed only if they have a directory here. Others may be another
// agent's, which has made their cgroup and not yet their sandbox.
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
		time.Sleep(2 * time.Minute)
		end()
		if !slices.Equal(slices.Compact(removed), []types.UID{"own"}) {
			t.Errorf("removed the cgroups of %v, want that of the pod with a directory", removed)
		}
		if _, err := os.Stat(own); !os.IsNotExist(err) {
			t.Errorf("the directory of the pod is still there: %v", err)
		}
	})
}

// late is a source that has nothing until its manifest comes.
type late struct {
	manifest
	comes <-chan struct{}
}

func (l late) Run(ctx context.Context, out func(source.Snapshot)) error {
	out(source.Snapshot{Source: pods.SourceFile, Ready: true})
	select {
	case <-l.comes:
	case <-ctx.Done():
		return nil
	}
	return l.manifest.Run(ctx, out)
}

// A static pod that comes back has the same UID. If it comes back while what was left of it is
// being removed, the pod is made afterwards, and nothing of it is removed.
func TestPruneMeetsThePodThatComesBack(t *testing.T) {
	const web = manifest(
		`{apiVersion: v1, kind: Pod, metadata: {name: web}, spec: {containers: [{name: app, image: app}]}}`)
	uid := (source.Decoder{NodeName: "node"}).Decode("pod.yaml", []byte(web))[0].Pod.UID
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		home := filepath.Join(dir, "root", "pods", string(uid))
		leftover := filepath.Join(home, "volumes", "leftover")
		if err := os.MkdirAll(leftover, 0o750); err != nil {
			t.Fatal(err)
		}
		comes := make(chan struct{})
		times := 0
		cgroups := noCgroups{removed: func(types.UID) {
			if times++; times == 1 {
				close(comes)
				time.Sleep(20 * time.Second) // long enough for the pod to come up
			}
		}}
		a, end := liveWith(t, dir, fake.New(fake.Config{WriteLogs: true}), late{web, comes},
			Deps{Cgroups: cgroups}, nil)
		defer end()
		time.Sleep(2 * time.Minute)
		pods := a.Pods()
		if len(pods) != 1 || pods[0].UID != uid || pods[0].Status.Phase != v1.PodRunning {
			t.Fatalf("pods %+v", pods)
		}
		if times != 1 {
			t.Errorf("its cgroup was removed %d times", times)
		}
		if _, err := os.Stat(filepath.Join(home, "etc-hosts")); err != nil {
			t.Errorf("the pod that runs has lost its directory: %v", err)
		}
		if _, err := os.Stat(leftover); !os.IsNotExist(err) {
			t.Errorf("what was left is still there: %v", err)
		}
	})
}

// A leftover whose removal takes long, as that of a volume whose driver does not answer, holds up
// neither the other leftovers nor the QoS cgroups.
func TestPruneThatTakesLongHoldsUpNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		for _, uid := range []string{"stuck", "other"} {
			if err := os.MkdirAll(filepath.Join(dir, "root", "pods", uid), 0o750); err != nil {
				t.Fatal(err)
			}
		}
		var updates atomic.Int32
		answer := make(chan struct{})
		cgroups := noCgroups{
			updated: func() { updates.Add(1) },
			removed: func(uid types.UID) {
				if uid == "stuck" {
					<-answer
				}
			},
		}
		_, end := liveWith(t, dir, fake.New(fake.Config{}), manifest(""), Deps{Cgroups: cgroups}, nil)
		defer end()
		defer close(answer)
		time.Sleep(time.Minute)
		before := updates.Load()
		time.Sleep(10 * time.Minute)
		if n := updates.Load() - before; n < 10 {
			t.Errorf("the QoS cgroups were brought up to date %d times in ten minutes", n)
		}
		if _, err := os.Stat(filepath.Join(dir, "root", "pods", "other")); !os.IsNotExist(err) {
			t.Errorf("the other leftover is still there: %v", err)
		}
		if _, err := os.Stat(filepath.Join(dir, "root", "pods", "stuck")); err != nil {
			t.Errorf("the leftover whose cgroup is still there has lost its directory: %v", err)
		}
		late := filepath.Join(dir, "root", "pods", "late")
		if err := os.MkdirAll(late, 0o750); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Minute)
		if _, err := os.Stat(late); !os.IsNotExist(err) {
			t.Errorf("a leftover that came later is still there: %v", err)
		}
	})
}

// TestMountTableStaysReadable checks that the agent unmounts a subPath whose directory lies so deep
// now that no runtime can start anything on the node.
func TestMountTableStaysReadable(t *testing.T) {
	if mounttabletest.Private(t) {
		return
	}
	synctest.Test(t, func(t *testing.T) {
		dir, volume := t.TempDir(), t.TempDir()
		place := filepath.Join(dir, "root", "pods", "stuck", "volume-subpaths", "v", "main", "0")
		moved := filepath.Join(volume, "moved")
		for _, d := range []string{place, moved} {
			if err := os.MkdirAll(d, 0o750); err != nil {
				t.Fatal(err)
			}
		}
		if err := unix.Mount(moved, place, "", unix.MS_BIND, ""); err != nil {
			t.Fatal(err)
		}
		if err := unix.Renameat(unix.AT_FDCWD, moved, mounttabletest.Deep(t, volume), "deep"); err != nil {
			t.Fatal(err)
		}
		answer := make(chan struct{})
		cgroups := noCgroups{updated: func() {}, removed: func(types.UID) { <-answer }}
		_, end := liveWith(t, dir, fake.New(fake.Config{}), manifest(""), Deps{Cgroups: cgroups}, nil)
		defer end()
		defer close(answer)
		time.Sleep(2 * time.Minute)
		if _, err := mountinfo.GetMounts(nil); err != nil {
			t.Errorf("a runtime reads the mount table: %v", err)
		}
	})
}
