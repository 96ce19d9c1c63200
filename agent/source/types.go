package source

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berthd/berth/agent/source/objects"
)

// Source is a place that pods come from.
type Source interface {
	// Name is the source's name. It never changes.
	Name() string
	// Run calls out with a first snapshot as soon as it has one, and again after every change,
	// until ctx ends. It makes one call at a time. Run returns nil when ctx ends; it returns
	// earlier only if it can never work.
	Run(ctx context.Context, out func(Snapshot)) error
}

// Snapshot is everything that one source wants.
type Snapshot struct {
	// Source is the source's name.
	Source string
	// Ready means that the source was read once, so that everything missing from it is unwanted.
	// Ready never becomes false again.
	Ready bool
	// Pods are the desired pods with defaults set and validated. Each has a UID, a name and a
	// namespace.
	Pods []*v1.Pod
	// Objects are the local objects other than pods.
	Objects []objects.Object
	// Results has an entry for each document of each manifest, and for everything that could not
	// be read.
	Results []Result
}

// Result is the validation result of one document of a manifest, of a file or of a directory.
type Result struct {
	// File is the manifest's path.
	File string
	// Document counts the documents of the file from 1. It is 0 for the file as a whole.
	Document int
	// Line is the line that the result is about, from 1. It is 0 if the result is about no line.
	Line int

	// Kind, Namespace and Name are those of the object, as far as they are known. Name is the
	// object's name on this node.
	Kind      string
	Namespace string
	Name      string
	// UID is the UID of an accepted pod.
	UID types.UID

	// Accepted means that the object is part of the desired set. For a file or directory it means
	// that the result has only warnings.
	Accepted bool
	// Kept means that an earlier version of the object is part of the desired set, because the
	// current version is refused or cannot be read.
	Kept bool
	// Field is the path of the first wrong field.
	Field string
	// Message is the reason of a refusal, in upstream's words. If several fields are wrong, Message
	// is about the first.
	Message string
	// Faults are all faults, with the first one. Faults is nil if there is one fault, or if no
	// field is wrong.
	Faults []Fault
	// Warnings are about ignored things (unknown fields) and dangerous things (ownership).
	Warnings []string

	// Arrival tells one arrival of the file from another: a file that was deleted and created again
	// has arrived again, even if nobody saw it missing. It is 0 if that is not known, as for a
	// version that is kept, or for a source that has no files.
	Arrival int

	// Since is the time when the source first gave this result.
	Since time.Time
}

// Update is what all sources together want.
type Update struct {
	// Pods are the desired pods. A pod that did not change since the last update keeps its pointer.
	Pods map[types.UID]*v1.Pod
	// Ready are the sources that were read once. The agent may remove only pods and objects of a
	// ready source. It may remove things that belong to no source only after all sources are ready.
	Ready map[string]bool
	// AllReady means that every source is ready.
	AllReady bool
	// Results are the results of all sources.
	Results []Result
}
