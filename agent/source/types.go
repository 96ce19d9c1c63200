package source

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berthd/berth/agent/objects"
)

// NameFile, NameHTTP and NameAPI are the sources' names, as they stand in the pods' annotation kubernetes.io/config.source.
const (
	NameFile = "file"
	NameHTTP = "http"
	NameAPI  = "api"
)

// Annotations of pods, the kubelet's.
const (
	// AnnotationSource is the pod's source.
	AnnotationSource = "kubernetes.io/config.source"
	// AnnotationSeen is when the agent first saw the pod.
	AnnotationSeen = "kubernetes.io/config.seen"
	// AnnotationHash is a static pod's hash, which is its UID unless the manifest sets one.
	AnnotationHash = "kubernetes.io/config.hash"
)

// Bound reports whether a pod came from an API server, which has bound it to this node. It asks what the mux wrote on the pod, whatever the pod said itself.
func Bound(pod *v1.Pod) bool { return pod.Annotations[AnnotationSource] == NameAPI }

// Source is a place that pods come from.
type Source interface {
	// Name is the source's name, the same at all times.
	Name() string
	// Run calls out with a first snapshot as soon as it has one, and again after every change, one call after the other, until ctx ends. It returns nil
	// then, and never before unless it can never work.
	Run(ctx context.Context, out func(Snapshot)) error
}

// Snapshot is all that one source wants.
type Snapshot struct {
	// Source is the source's name.
	Source string
	// Ready says that the source has been read once, so that what is not in it is not wanted. It never becomes false again.
	Ready bool
	// Pods are the desired pods, defaulted and valid, each with UID, name and namespace.
	Pods []*v1.Pod
	// Objects are the local objects that are no pods.
	Objects []objects.Object
	// Verdicts has an entry for each document of each manifest, and for what could not be read.
	Verdicts []Verdict
}

// Verdict says what became of one document of a manifest, of a file or of a directory.
type Verdict struct {
	// File is the manifest's path.
	File string
	// Document counts the documents of the file from 1; 0 is the file as a whole.
	Document int
	// Line is the line that the verdict is about, from 1; 0 if it is about no line.
	Line int

	// Kind, Namespace and Name are of the object, as far as they are known; the name is the one the object has on this node.
	Kind      string
	Namespace string
	Name      string
	// UID is an accepted pod's.
	UID types.UID

	// Accepted says that the object is part of the desired set, or for a file or directory that only the warnings are about it.
	Accepted bool
	// Kept says that an earlier version of the object is part of the desired set, since the current one is refused or cannot be read.
	Kept bool
	// Field is the path of the first field that is wrong.
	Field string
	// Message says why it was not accepted, with upstream's words; of several fields that are wrong it says what is the matter with the first.
	Message string
	// Faults are all that are wrong, the first included; nil where it is one, or no field is.
	Faults []Fault
	// Warnings are about things that are ignored (unknown fields) or dangerous (ownership).
	Warnings []string

	// Since is when this verdict was first given.
	Since time.Time
}

// Update is what all sources together want.
type Update struct {
	// Pods are the desired pods. A pod that did not change since the last update is the same pointer.
	Pods map[types.UID]*v1.Pod
	// Ready are the sources that have been read once. Only what belongs to a ready source may be removed, and only
	// once all are ready may things that belong to nobody be.
	Ready map[string]bool
	// AllReady says that every source is ready.
	AllReady bool
	// Verdicts are those of all sources.
	Verdicts []Verdict
}
