// Package imagesapi answers the API's questions about images.
//
// Purpose: who provides images to pods and who removes them do not know the API. [Answers] asks
// them, and says it in the API's words.
//
// Truth owned: none; it is that of packages images and garbage. Concurrency: as theirs, safe for
// concurrent use.
package imagesapi

import (
	"context"
	"slices"

	"github.com/berthd/berth/agent/images"
	"github.com/berthd/berth/agent/images/garbage"
	"github.com/berthd/berth/client/api"
)

// Answers answers questions about the images of the node. Make it with [New].
type Answers struct {
	manager *images.Manager
	garbage *garbage.Collector
}

// New returns the answers of who provides images and who removes them.
func New(manager *images.Manager, collector *garbage.Collector) Answers {
	return Answers{manager: manager, garbage: collector}
}

// Images returns the node's images and their use; see [garbage.Collector.List].
func (a Answers) Images(ctx context.Context) ([]api.Image, error) {
	list, err := a.garbage.List(ctx)
	return imagesOf(list), err
}

// PruneImages removes the images that nothing uses, and returns them; see
// [garbage.Collector.Prune]. With dryRun it removes none.
func (a Answers) PruneImages(ctx context.Context, dryRun bool) ([]api.Image, error) {
	if !dryRun {
		removed, err := a.garbage.Prune(ctx)
		return imagesOf(removed), err
	}
	list, err := a.garbage.List(ctx)
	return imagesOf(slices.DeleteFunc(list, func(one garbage.Image) bool { return !one.Removable() })), err
}

// PullImage pulls an image, and returns its ID; see [images.Manager.Pull].
func (a Answers) PullImage(ctx context.Context, image string) (id string, err error) {
	pulled, err := a.manager.Pull(ctx, image)
	return pulled.Ref, err
}

// RemoveImage removes one image; see [garbage.Collector.Remove].
func (a Answers) RemoveImage(ctx context.Context, name string) (api.Image, error) {
	image, err := a.garbage.Remove(ctx, name)
	if err != nil {
		return api.Image{}, err
	}
	return imagesOf([]garbage.Image{*image})[0], nil
}

func imagesOf(list []garbage.Image) []api.Image {
	out := make([]api.Image, 0, len(list))
	for _, i := range list {
		tags := slices.Clone(i.GetRepoTags())
		slices.Sort(tags)
		out = append(out, api.Image{
			ID: i.GetId(), Tags: tags, Digests: i.GetRepoDigests(), Size: i.GetSize(), Pinned: i.KeptBy != "",
			PinnedBy: i.KeptBy, InUse: i.UsedBy != "", UsedBy: i.UsedBy, LastUsed: i.LastUsed,
		})
	}
	return out
}

// Pulls returns the pulls of images that are under way or failed. Pulls asks the runtime for the
// progress of those under way.
func (a Answers) Pulls(ctx context.Context) []api.Pull {
	progress := a.manager.Progress(ctx)
	out := make([]api.Pull, 0, len(progress))
	for _, p := range progress {
		out = append(out, pullOf(p))
	}
	return out
}

func pullOf(p images.Pull) api.Pull {
	pull := api.Pull{
		Image:   p.Image,
		State:   string(p.State),
		Since:   p.Since,
		Done:    p.Done,
		Total:   p.Total,
		Message: p.Error,
		Waiters: len(p.Pods),
	}
	if !p.RetryAt.IsZero() {
		at := p.RetryAt
		pull.RetryAt = &at
	}
	return pull
}

// Archives returns the archives of the images directory, by path; see [images.Manager.Archives].
func (a Answers) Archives() []api.Archive {
	var out []api.Archive
	for _, one := range a.manager.Archives() {
		state := api.ArchiveImported
		switch {
		case one.Error != "":
			state = api.ArchiveFailed
		case len(one.Images) == 0:
			state = api.ArchiveWaiting
		}
		out = append(out, api.Archive{Path: one.Path, State: state, Images: one.Images, Error: one.Error})
	}
	return out
}
