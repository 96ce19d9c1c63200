package agent

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/berthd/berth/client/api"
	"github.com/berthd/berth/configs"
	"github.com/berthd/berth/cri/fake"
)

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
