// Package garbage removes images that no container uses.
//
// Purpose: the disk with the images does not fill up. Every five minutes a [Collector] looks which
// images are used. It removes unused ones that are older than the config's maximum age, and, if the
// disk is fuller than the high threshold, as many as it takes to come below the low one: first
// those that were never used, then those whose last use is longest ago. Thresholds, ages, events
// and their messages are the kubelet's.
//
// An image is in use if a container of any pod has it or mounts it, whoever made the pod, and also
// if a pod that is wanted and has not ended needs it. These stay, too: images that the runtime has
// pinned, as it has those of the archives; images that the config pins; the sandbox image; and
// images that were first seen less than the minimum age ago.
//
// Truth owned: when each image was first seen, and when it was last used. A file keeps these times
// over restarts of the agent. Which images exist is the runtime's truth. Package images removes an
// image, because only it knows whether a pod is about to use the image.
//
// Concurrency: a [Collector] is safe for concurrent use. Only one round or [Collector.Prune] runs
// at a time; [Collector.List] waits for none.
package garbage

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/berthd/berth/configs"
)

// period is the time between two rounds; it is the kubelet's ImageGCPeriod.
const period = 5 * time.Minute

// Reason is why an image was removed; it is the label of a metric of the kubelet's.
type Reason string

// The reasons.
const (
	ReasonSpace Reason = "space"
	ReasonAge   Reason = "age"
)

// Policy says which unused images are removed.
type Policy struct {
	// High and Low are how full the disk with the images may be, in percent. A disk that has
	// reached High is freed until it is below Low.
	High, Low int
	// MinAge is how long ago an image must have been seen first.
	MinAge time.Duration
	// MaxAge is how long an image may be unused; 0 means for ever.
	MaxAge time.Duration
}

// PolicyFrom returns the policy of a config.
func PolicyFrom(cfg *configs.Config) Policy {
	k := &cfg.Kubelet
	return Policy{
		High:   int(*k.ImageGCHighThresholdPercent),
		Low:    int(*k.ImageGCLowThresholdPercent),
		MinAge: k.ImageMinimumGCAge.Duration,
		MaxAge: k.ImageMaximumGCAge.Duration,
	}
}

// never reports whether the policy never removes an image, so that nobody has to look how full the
// disk is.
func (p Policy) never() bool { return p.High == 100 && p.MaxAge == 0 }

// Runtime is what a collector needs of the container runtime.
type Runtime interface {
	ListImages(ctx context.Context) ([]*runtimeapi.Image, error)
	// ImageStatus returns nil without an error if the image is not there.
	ImageStatus(ctx context.Context, spec *runtimeapi.ImageSpec) (*runtimeapi.Image, error)
	ListContainers(ctx context.Context, filter *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error)
	ContainerStatus(ctx context.Context, id string) (*runtimeapi.ContainerStatus, error)
	Status(ctx context.Context, verbose bool) (*runtimeapi.StatusResponse, error)
}

// Images removes images; *images.Manager does.
type Images interface {
	// KeptBy says why an image must stay although nothing uses it; empty if it need not.
	KeptBy(image *runtimeapi.Image) string
	// Remove removes an image unless a pod has asked for it, and reports whether it did.
	Remove(ctx context.Context, image *runtimeapi.Image) (bool, error)
	// Tidy removes the records of images that no longer exist.
	Tidy(ctx context.Context)
}

// Deps are what a collector works with.
type Deps struct {
	Runtime Runtime
	Images  Images
	// Wanted returns the pods that have not ended, with those that wait to run.
	Wanted func() []*v1.Pod
	// FileSystem returns the space of the disk with the images.
	FileSystem func(ctx context.Context) (*statsapi.FsStats, error)
	// Event records an event about the node.
	Event func(kind, reason, message string)
	// Removed is called after each removal.
	Removed func(reason string)
	Logger  *slog.Logger
}

// Collector removes unused images. Make it with [New].
type Collector struct {
	policy Policy
	deps   Deps
	log    *slog.Logger
	file   string
	// turn is held by whoever removes images. It guards removed, which says that there is something
	// to tidy.
	turn    chan struct{}
	removed bool

	mu sync.Mutex
	// uses has the times of each image by id; nil before the file was read.
	uses map[string]use
}

// New returns a collector that keeps the times of use in file; empty keeps them in memory alone. It
// does nothing before [Collector.Run] or another call.
func New(policy Policy, file string, deps Deps) *Collector {
	return &Collector{policy: policy, deps: deps, log: deps.Logger, file: file, turn: make(chan struct{}, 1)}
}

// Run looks which images are used now, and then removes unused ones every five minutes, until ctx
// ends.
func (c *Collector) Run(ctx context.Context) error {
	if _, err := c.List(ctx); err != nil && ctx.Err() == nil {
		c.log.Warn("Could not look which images are used; it is tried again in five minutes", "err", err)
	}
	tick := time.NewTicker(period)
	defer tick.Stop()
	failed := false
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		err := c.round(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && failed: // a kubelet reports only what fails again
			c.deps.Event(v1.EventTypeWarning, "ImageGCFailed", err.Error())
			c.log.Error("Image garbage collection failed multiple times in a row", "err", err)
		case err != nil:
			c.log.Warn("Image garbage collection failed; it is tried again in five minutes", "err", err)
		case failed:
			c.log.Info("Image garbage collection succeeded")
		}
		failed = err != nil
	}
}

// round removes the images that are too old, and then as many as the disk's space needs.
func (c *Collector) round(ctx context.Context) error {
	if err := c.begin(ctx); err != nil {
		return err
	}
	defer c.end(ctx)
	unused, err := c.unused(ctx)
	if err != nil {
		return err
	}
	defer c.save() // also the times of the used images, which each look changes
	if c.policy.never() {
		return nil
	}
	now := time.Now()
	if unused, err = c.freeOld(ctx, unused, now); err != nil {
		return err
	}
	space, err := c.deps.FileSystem(ctx)
	if err != nil {
		return err
	}
	full, err := fullness(space, c.policy)
	if err != nil {
		c.deps.Event(v1.EventTypeWarning, "InvalidDiskCapacity", err.Error())
		return err
	}
	if full.percent < c.policy.High {
		return nil
	}
	c.log.Info("The disk with the images is over the high threshold; unused images are removed",
		"usage", full.percent, "highThreshold", c.policy.High, "amountToFree", full.excess, "lowThreshold", c.policy.Low)
	removed, err := c.free(ctx, unused, full.excess, now)
	if err != nil {
		return err
	}
	if freed := sizeOf(removed); freed < full.excess {
		message := fmt.Sprintf("Insufficient free disk space on the node's image filesystem (%d%% of %s used). "+
			"Failed to free sufficient space by deleting unused images (freed %d bytes). "+
			"Investigate disk usage, as it could be used by active images, logs, volumes, or other data.",
			full.percent, formatSize(full.capacity), freed)
		c.deps.Event(v1.EventTypeWarning, "FreeDiskSpaceFailed", message)
		return errors.New(message)
	}
	return nil
}

// DeleteUnusedImages removes all unused images, however full the disk is. Images that were first
// seen less than the minimum age ago stay. The error joins those of all images.
func (c *Collector) DeleteUnusedImages(ctx context.Context) error {
	_, err := c.Prune(ctx)
	return err
}

// Prune is [Collector.DeleteUnusedImages], and returns the removed images also beside an error.
func (c *Collector) Prune(ctx context.Context) ([]Image, error) {
	if err := c.begin(ctx); err != nil {
		return nil, err
	}
	defer c.end(ctx)
	unused, err := c.unused(ctx)
	if err != nil {
		return nil, err
	}
	defer c.save()
	return c.free(ctx, unused, math.MaxInt64, time.Now())
}

// The errors of [Collector.Remove].
var (
	// ErrNoImage: the node has no such image. ErrNeeded: something needs the image.
	ErrNoImage = errors.New("the node has no such image")
	ErrNeeded  = errors.New("the image is needed")
)

// Remove removes one image with all of its names, however young it is, and returns it. name is one
// of its names, as a pod may write it, or its ID, or the beginning of that. The error is
// [ErrNoImage], [ErrNeeded] for an image that a container has, that a pod needs or that is pinned,
// or one of the runtime.
func (c *Collector) Remove(ctx context.Context, name string) (*Image, error) {
	if err := c.begin(ctx); err != nil {
		return nil, err
	}
	defer c.end(ctx)
	list, err := c.List(ctx)
	if err != nil {
		return nil, err
	}
	image, err := named(list, name)
	switch {
	case err != nil:
		return nil, err
	case image.UsedBy != "":
		return nil, fmt.Errorf("%w: %s: %s", ErrNeeded, image.Name(), image.UsedBy)
	case image.KeptBy != "":
		return nil, fmt.Errorf("%w: %s is pinned: %s", ErrNeeded, image.Name(), image.KeptBy)
	}
	defer c.save()
	removed, err := c.remove(ctx, *image, ReasonSpace)
	if err == nil && !removed {
		err = fmt.Errorf("%w: a pod has asked for %s just now", ErrNeeded, image.Name())
	}
	return image, err
}

// begin takes the turn, or returns the error of ctx. end gives the turn back, and then the records
// of removed images are removed, too.
func (c *Collector) begin(ctx context.Context) error {
	select {
	case c.turn <- struct{}{}:
		c.removed = false
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (c *Collector) end(ctx context.Context) {
	removed := c.removed
	<-c.turn
	if removed {
		c.deps.Images.Tidy(ctx)
	}
}

// freeOld removes the images that were unused for longer than the maximum age, and returns the
// others. The turn is held.
func (c *Collector) freeOld(ctx context.Context, unused []Image, now time.Time) ([]Image, error) {
	if c.policy.MaxAge == 0 {
		return unused, nil
	}
	var left []Image
	var errs []error
	for _, image := range unused {
		if now.Sub(image.idleSince()) <= c.policy.MaxAge {
			left = append(left, image)
		} else if removed, err := c.remove(ctx, image, ReasonAge); !removed {
			left = append(left, image)
			errs = appendError(errs, err)
		}
	}
	if len(errs) > 0 {
		return left, fmt.Errorf("wanted to free images older than %v, encountered errors in image deletion: %w",
			c.policy.MaxAge, aggregate(errs))
	}
	return left, nil
}

// free removes images in order until they sum up to so many bytes, and returns the removed ones. A
// failure does not stop it. The turn is held.
func (c *Collector) free(ctx context.Context, unused []Image, bytes int64, now time.Time) ([]Image, error) {
	var removed []Image
	var errs []error
	for _, image := range unused {
		if image.youngAt(now, c.policy) {
			continue
		}
		ok, err := c.remove(ctx, image, ReasonSpace)
		errs = appendError(errs, err)
		if !ok {
			continue
		}
		if removed = append(removed, image); sizeOf(removed) >= bytes {
			break
		}
	}
	if len(errs) > 0 {
		return removed, fmt.Errorf("wanted to free %d bytes, but freed %d bytes space with errors in image deletion: %w",
			bytes, sizeOf(removed), aggregate(errs))
	}
	return removed, nil
}

// remove removes one image. The turn is held.
func (c *Collector) remove(ctx context.Context, image Image, why Reason) (bool, error) {
	removed, err := c.deps.Images.Remove(ctx, image.Image)
	if !removed {
		return false, err
	}
	c.log.Info("Removed an unused image", "image", image.Name(), "id", image.GetId(), "size", image.GetSize(),
		"why", why, "lastUsed", image.LastUsed)
	c.removed = true
	c.forget(image.GetId())
	c.deps.Removed(string(why))
	return true, nil
}
