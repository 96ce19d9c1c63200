package garbage

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berthd/berth/agent/images"
	"github.com/berthd/berth/cri"
)

// Image is an image of the node with its use.
type Image struct {
	*runtimeapi.Image
	// FirstSeen is when the collector first saw the image. LastUsed is when it last saw the image
	// in use; zero if never.
	FirstSeen, LastUsed time.Time
	// UsedBy names a container that has the image, or a pod that needs it; empty if nothing uses
	// the image. KeptBy says why the image stays although nothing uses it; empty if it does not.
	UsedBy, KeptBy string
	// Young says that the image was first seen less than the minimum age ago.
	Young bool
}

// Removable reports whether [Collector.Prune] would remove the image.
func (i *Image) Removable() bool { return i.UsedBy == "" && i.KeptBy == "" && !i.Young }

// Name returns a name of the image for people.
func (i *Image) Name() string {
	return cmp.Or(strings.Join(i.GetRepoTags(), ","), strings.Join(i.GetRepoDigests(), ","), i.GetId())
}

// idleSince returns since when an unused image has not been used. An image that never was counts
// from its first look.
func (i *Image) idleSince() time.Time {
	if i.LastUsed.After(i.FirstSeen) {
		return i.LastUsed
	}
	return i.FirstSeen
}

// youngAt reports whether the image was seen first too short a time ago to be removed.
func (i *Image) youngAt(now time.Time, p Policy) bool { return now.Sub(i.FirstSeen) < p.MinAge }

// unused returns the images that may be removed once they are old enough, in the order of
// [Collector.List].
func (c *Collector) unused(ctx context.Context) ([]Image, error) {
	list, err := c.List(ctx)
	return slices.DeleteFunc(list, func(i Image) bool { return i.UsedBy != "" || i.KeptBy != "" }), err
}

// List returns the node's images and notes their use: first the images that were never used, then
// those whose last use is longest ago. It lists the images before everything that may use one, so
// that it sees a container that is made meanwhile.
func (c *Collector) List(ctx context.Context) ([]Image, error) {
	list, err := c.deps.Runtime.ListImages(ctx)
	if err != nil {
		return nil, fmt.Errorf("list images: %w", err)
	}
	index := newIndex(list)
	if err := c.markUsed(ctx, index); err != nil {
		return nil, err
	}
	sandbox, err := c.sandboxImage(ctx)
	if err != nil {
		return nil, err
	}
	times := c.note(list, index.used)
	now := time.Now()
	out := make([]Image, 0, len(list))
	for _, image := range list {
		u := times[image.GetId()]
		i := Image{
			Image: image, FirstSeen: u.FirstSeen, LastUsed: u.LastUsed, UsedBy: index.used[image.GetId()],
			KeptBy: c.deps.Images.KeptBy(image),
		}
		if sandbox != "" && index.byName[sandbox] == image.GetId() {
			i.KeptBy = "the runtime makes the sandboxes of pods of it"
		}
		i.Young = i.youngAt(now, c.policy)
		out = append(out, i)
	}
	slices.SortStableFunc(out, func(a, b Image) int {
		return cmp.Or(a.LastUsed.Compare(b.LastUsed), a.FirstSeen.Compare(b.FirstSeen), cmp.Compare(a.Name(), b.Name()))
	})
	return out, nil
}

// minID is the least length of the beginning of an ID by which an image may be named.
const minID = 6

// named returns the image of a list that has a name, or an ID that begins so.
func named(list []Image, name string) (*Image, error) {
	full, err := images.FullName(name)
	if err != nil {
		full = name
	}
	var found []*Image
	for i := range list {
		names := slices.Concat(list[i].GetRepoTags(), list[i].GetRepoDigests(), []string{list[i].GetId()})
		if slices.Contains(names, name) || slices.Contains(names, full) {
			return &list[i], nil
		}
		_, digits, _ := strings.Cut(list[i].GetId(), ":")
		if len(name) >= minID && (strings.HasPrefix(digits, name) || strings.HasPrefix(list[i].GetId(), name)) {
			found = append(found, &list[i])
		}
	}
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		return nil, fmt.Errorf("%w: %s", ErrNoImage, name)
	}
	return nil, fmt.Errorf("%w: %d IDs begin with %s", ErrNoImage, len(found), name)
}

// index finds images by any of their names.
type index struct {
	byName map[string]string // the id of each image, by its id, full names and digests
	used   map[string]string // by id: who uses the image
}

func newIndex(list []*runtimeapi.Image) *index {
	x := &index{byName: map[string]string{}, used: map[string]string{}}
	for _, image := range list {
		for _, name := range slices.Concat([]string{image.GetId()}, image.GetRepoTags(), image.GetRepoDigests()) {
			x.byName[name] = image.GetId()
		}
	}
	return x
}

// use marks the image of that name as used by somebody, and reports whether it is there.
func (x *index) use(name, by string) bool {
	id, ok := x.byName[name]
	if !ok {
		if full, err := images.FullName(name); err == nil {
			id, ok = x.byName[full]
		}
	}
	if ok && x.used[id] == "" {
		x.used[id] = by
	}
	return ok
}

// markUsed marks the images of all containers, and of the pods that are wanted.
func (c *Collector) markUsed(ctx context.Context, x *index) error {
	containers, err := c.deps.Runtime.ListContainers(ctx, nil)
	if err != nil {
		return fmt.Errorf("list containers: %w", err)
	}
	wanted := map[string]bool{}
	for _, pod := range c.deps.Wanted() {
		wanted[string(pod.UID)] = true
		for name := range imagesOf(pod) {
			if err := c.markNamed(ctx, x, name, fmt.Sprintf("pod %s/%s names it", pod.Namespace, pod.Name)); err != nil {
				return err
			}
		}
	}
	for _, container := range containers {
		by := holder(container)
		x.use(container.GetImageId(), by)
		x.use(container.GetImageRef(), by)
		x.use(container.GetImage().GetImage(), by)
		if wanted[container.GetLabels()[cri.LabelPodUID]] {
			continue // the pod says which images it mounts
		}
		if err := c.markMounted(ctx, x, container); err != nil {
			return err
		}
	}
	return nil
}

// holder says that a container has an image. Until the container is removed, the image stays.
func holder(c *runtimeapi.Container) string {
	what := "container"
	if c.GetState() == runtimeapi.ContainerState_CONTAINER_EXITED {
		what = "the ended container"
	}
	labels := c.GetLabels()
	return fmt.Sprintf("%s %s of pod %s/%s has it", what, c.GetMetadata().GetName(), labels[cri.LabelPodNamespace],
		labels[cri.LabelPodName])
}

// markNamed marks the image that a pod names. A runtime may have rules of its own for short names,
// and so it is asked for a name that no image has. A name of which it can make nothing, such as the
// beginning of two IDs, is no image's: else one pod with such a name would keep all images.
func (c *Collector) markNamed(ctx context.Context, x *index, name, by string) error {
	if x.use(name, by) {
		return nil
	}
	image, err := c.deps.Runtime.ImageStatus(ctx, &runtimeapi.ImageSpec{Image: name})
	switch {
	case err != nil && !c.answers(ctx, x):
		return fmt.Errorf("look for image %s: %w", name, err)
	case err != nil:
		c.log.Debug("The runtime cannot look for an image that a pod names", "image", name, "by", by, "err", err)
	case image != nil:
		x.use(image.GetId(), by)
	}
	return nil
}

// answers reports whether the runtime finds an image that it has listed.
func (c *Collector) answers(ctx context.Context, x *index) bool {
	for _, id := range x.byName {
		image, err := c.deps.Runtime.ImageStatus(ctx, &runtimeapi.ImageSpec{Image: id})
		return err == nil && image != nil
	}
	return ctx.Err() == nil // without images there is nothing to remove
}

// markMounted marks the images that a container of somebody else's pod mounts.
func (c *Collector) markMounted(ctx context.Context, x *index, container *runtimeapi.Container) error {
	if container.GetState() == runtimeapi.ContainerState_CONTAINER_EXITED {
		return nil
	}
	status, err := c.deps.Runtime.ContainerStatus(ctx, container.GetId())
	if err != nil {
		if errdefs.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("get container status: %w", err)
	}
	for _, mount := range status.GetMounts() {
		x.use(mount.GetImage().GetImage(), holder(container))
	}
	return nil
}

// imagesOf returns the images that a pod names.
func imagesOf(pod *v1.Pod) map[string]bool {
	out := map[string]bool{}
	for _, list := range [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			out[list[i].Image] = true
		}
	}
	for i := range pod.Spec.EphemeralContainers {
		out[pod.Spec.EphemeralContainers[i].Image] = true
	}
	for i := range pod.Spec.Volumes {
		if image := pod.Spec.Volumes[i].Image; image != nil {
			out[image.Reference] = true
		}
	}
	delete(out, "")
	return out
}

// sandboxImage returns the full name of the image of which containerd makes sandboxes, as its
// config has it; containerd before 1.7 does not pin that image. It is empty for a runtime that does
// not say.
func (c *Collector) sandboxImage(ctx context.Context) (string, error) {
	status, err := c.deps.Runtime.Status(ctx, true)
	if err != nil {
		return "", fmt.Errorf("ask for the sandbox image: %w", err)
	}
	var config struct {
		SandboxImage string `json:"sandboxImage"`
	}
	if err := json.Unmarshal([]byte(status.GetInfo()["config"]), &config); err != nil || config.SandboxImage == "" {
		return "", nil //nolint:nilerr // a runtime with another config pins the image
	}
	name, err := images.FullName(config.SandboxImage)
	if err != nil {
		return config.SandboxImage, nil //nolint:nilerr // the runtime's own spelling
	}
	return name, nil
}
