package agent

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/berthd/berth/client/api"
	"github.com/berthd/berth/configs"
	"github.com/berthd/berth/cri/fake"
)

// What "berth images prune" would remove is what it removes.
func TestPruneImages(t *testing.T) {
	const web = manifest(
		`{apiVersion: v1, kind: Pod, metadata: {name: web}, spec: {containers: [{name: app, image: app}]}}`)
	synctest.Test(t, func(t *testing.T) {
		rt := fake.New(fake.Config{WriteLogs: true, Images: []fake.Image{
			{Name: "app", Present: true, Size: 1},
			{Name: "other", Present: true, Size: 2},
			{Name: "pinned", Present: true, Size: 4, Pinned: true},
		}})
		a, end := live(t, t.TempDir(), rt, web)
		defer end()
		prune := func(dryRun bool, want ...string) {
			t.Helper()
			images, err := a.PruneImages(t.Context(), dryRun)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, i := range images {
				got = append(got, i.Tags...)
			}
			if !slices.Equal(got, want) {
				t.Errorf("pruned %q, want %q", got, want)
			}
		}
		time.Sleep(time.Minute)
		prune(true) // all are young
		time.Sleep(time.Minute)
		prune(true, "docker.io/library/other:latest")
		prune(false, "docker.io/library/other:latest")
		prune(false)
		images, err := a.Images(t.Context())
		if err != nil || len(images) != 2 {
			t.Fatalf("images %+v, %v", images, err)
		}
		pinned, app := images[0], images[1] // those that were never used come first
		if !pinned.Pinned || pinned.InUse || !pinned.LastUsed.IsZero() || app.Pinned || !app.InUse ||
			!app.LastUsed.Equal(time.Now()) || app.Size != 1 {
			t.Errorf("images %+v", images)
		}
	})
}

// An image that no container has is in use if a pod needs it that is wanted and may not run now.
func TestImagesOfPodsThatWaitStay(t *testing.T) {
	const web = manifest(
		`{apiVersion: v1, kind: Pod, metadata: {name: web}, spec: {containers: [{name: app, image: app}]}}`)
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		rt := fake.New(fake.Config{WriteLogs: true, Images: []fake.Image{
			{Name: "app", Present: true, Size: 1}, {Name: "other", Present: true, Size: 1},
		}})
		ages := func(cfg *configs.Config) { cfg.Kubelet.ImageMaximumGCAge.Duration = time.Hour }
		a, end := liveWith(t, dir, rt, web, Deps{}, ages)
		if err := a.Drain(api.DrainRequest{Hold: true}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		end()
		containers, err := rt.ListContainers(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range containers { // somebody cleans up
			if err := rt.RemoveContainer(t.Context(), c.Id); err != nil {
				t.Error(err)
			}
		}
		a, end = liveWith(t, dir, rt, web, Deps{}, ages)
		defer func() { end() }()
		time.Sleep(2 * time.Hour)
		images, err := rt.ListImages(t.Context())
		if err != nil || len(images) != 1 || images[0].RepoTags[0] != "docker.io/library/app:latest" {
			t.Errorf("images %v, %v", images, err)
		}
		if err := a.Undrain(); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Minute)
		if got := a.Pods(); len(got) != 1 || got[0].Status.Phase != "Running" {
			t.Errorf("pods %+v", got)
		}
	})
}
