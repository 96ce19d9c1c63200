package cri

import (
	"context"
	"time"
)

// Capabilities are what a runtime does beyond the CRI. A field is nil if the runtime lacks the
// capability. The agent learns which runtime is behind a socket only when the runtime answers.
// Until then, and if it turns out to be another runtime, the methods of a capability return what
// their interface says.
type Capabilities struct {
	Importer  ImageImporter
	Pinner    ImagePinner
	Pulls     PullReporter
	Repairer  Repairer
	Forgotten ForgottenFinder
}

// ImageImporter imports image archives.
type ImageImporter interface {
	// Import loads the archive at a path (an OCI layout or docker-save tar, plain or gzipped) to
	// where the CRI shows its images, unpacks them, pins these names, and returns these full names.
	// Importing the same archive again is cheap and harmless. Import has no deadline of its own. It
	// returns errdefs.IsNotImplemented if the runtime cannot import, and errdefs.IsInvalidArgument
	// if no image in the archive has a full name.
	Import(ctx context.Context, path string) ([]string, error)
}

// ImagePinner protects images from the runtime's garbage collection.
type ImagePinner interface {
	// Pin makes the runtime keep the image with this full name. Pinning twice is harmless. It
	// returns errdefs.IsNotImplemented if the runtime cannot pin, and errdefs.IsNotFound if the
	// image does not exist.
	Pin(ctx context.Context, name string) error
	// Unpin lets the runtime's garbage collection have the image, as far as this full name keeps
	// it. Its errors are those of Pin.
	Unpin(ctx context.Context, name string) error
}

// PullReporter reports the progress of pulls.
type PullReporter interface {
	// PullProgress returns the progress of the pull of an image that began at since. image is a
	// full name, with a tag or a digest. It returns errdefs.IsNotImplemented if the runtime cannot
	// report progress.
	PullProgress(ctx context.Context, image string, since time.Time) (PullProgress, error)
}

// PullProgress is the progress of one pull.
type PullProgress struct {
	// Done and Total are bytes of the image as the registry has it, compressed: those that have
	// arrived, and all. Total is 0 until the runtime has read the image's manifest.
	Done, Total int64
	// Activity is a number that changes whenever data arrived. It has no other meaning.
	Activity uint64
	// Unpacking says that all data has arrived, and that the runtime unpacks it.
	Unpacking bool
}

// Repairer removes what the runtime made for sandboxes and containers and then lost, because the
// runtime was killed or its caller went away. Both methods may be called at any time, and leave
// alone what may still be in use. They return how much they removed, also beside an error, and 0 if
// the runtime loses nothing.
type Repairer interface {
	// EndForgottenShims ends lost processes.
	EndForgottenShims(ctx context.Context) (int, error)
	// RemoveForgottenPaths removes lost network namespaces and bundles.
	RemoveForgottenPaths(ctx context.Context) (int, error)
}

// ForgottenFinder finds what a [Repairer] would remove, and changes nothing.
type ForgottenFinder interface {
	// ForgottenShims returns process IDs. A process that the runtime is just ending may be among
	// them.
	ForgottenShims(ctx context.Context) ([]int, error)
	// ForgottenPaths returns the paths of network namespaces and bundles.
	ForgottenPaths(ctx context.Context) ([]string, error)
}
