package api

import (
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// The paths under which the types of this package are served.
const (
	PathPods      = "/berth/v1/pods"
	PathWhy       = "/berth/v1/why/"
	PathManifests = "/berth/v1/manifests"
	PathEvents    = "/berth/v1/events"
	PathImages    = "/berth/v1/images"
	PathVersion   = "/berth/v1/version"
)

// EphemeralContainers follows [PathPods]/NAMESPACE/POD/: a v1.EphemeralContainer that is posted there is added to the pod.
const EphemeralContainers = "ephemeralcontainers"

// PodList is the answer of [PathPods].
type PodList struct {
	Items []PodSummary `json:"items"`
}

// Change is what a watch of [PathPods] sends: ADDED, MODIFIED or DELETED, as the Kubernetes API says it.
type Change struct {
	Type string     `json:"type"`
	Pod  PodSummary `json:"pod"`
}

// The types of a [Change].
const (
	Added    = "ADDED"
	Modified = "MODIFIED"
	Deleted  = "DELETED"
)

// Why is a pod's story and what it waits for: the answer of [PathWhy]NAMESPACE/POD.
type Why struct {
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	UID       types.UID `json:"uid,omitempty"`
	// Status is the summary's: what "berth ps" shows.
	Status string `json:"status"`
	// Phase is the pod's, and WorkerPhase that of the agent's worker for it: Running (it brings the pod up and keeps it up, however the pod itself is),
	// Terminating or Terminated. Both are empty for a pod that was never accepted.
	Phase       v1.PodPhase `json:"phase,omitempty"`
	WorkerPhase string      `json:"workerPhase,omitempty"`
	// WaitsFor says in one sentence what the pod waits for; empty if for nothing.
	WaitsFor string `json:"waitsFor,omitempty"`
	// Ended says why a pod has failed: its own reason and message, and each container that ended with another code than 0.
	Ended string `json:"ended,omitempty"`
	// Step is the step at which it waits.
	Step string `json:"step,omitempty"`
	// NextRetry is when the next pass is due if nothing happens before.
	NextRetry *time.Time `json:"nextRetry,omitempty"`
	// LastError is the latest failure of any step, whether overcome or not.
	LastError *Failure `json:"lastError,omitempty"`
	// Steps is the story, oldest first.
	Steps []Step `json:"steps"`
	// Manifest is the verdict on the pod's manifest where that was refused. If there is a pod all the same, it is of the manifest's last good version.
	Manifest *Manifest `json:"manifest,omitempty"`
}

// Failure is an error and when it was seen last.
type Failure struct {
	Step string `json:"step"`
	// Container is the container that it is about, where it is about one.
	Container string    `json:"container,omitempty"`
	Message   string    `json:"message"`
	Last      time.Time `json:"last"`
	// Count is how often in a row.
	Count int `json:"count"`
	// Overcome is true once the step has ended well again.
	Overcome bool `json:"overcome,omitempty"`
}

// Step is one step of one or more passes that ended alike.
type Step struct {
	Step  string    `json:"step"`
	Begin time.Time `json:"begin"`
	End   time.Time `json:"end"`
	// Last is when a pass ended so for the last time, and Count how many in a row did.
	Last  time.Time `json:"last"`
	Count int       `json:"count"`
	// Outcome is done, wait or failed.
	Outcome string `json:"outcome"`
	Message string `json:"message,omitempty"`
}

// The outcomes of a [Step].
const (
	Done   = "done"
	Wait   = "wait"
	Failed = "failed"
)

// Manifest is the verdict on one document of a manifest file.
type Manifest struct {
	File string `json:"file"`
	// Document counts the documents of the file from 1; 0 is the file as a whole.
	Document  int       `json:"document,omitempty"`
	Line      int       `json:"line,omitempty"`
	Kind      string    `json:"kind,omitempty"`
	Namespace string    `json:"namespace,omitempty"`
	Name      string    `json:"name,omitempty"`
	UID       types.UID `json:"uid,omitempty"`
	Accepted  bool      `json:"accepted"`
	// Kept says that an earlier version is accepted, since the current one, of which there may be an entry of its own, is refused or cannot be read.
	Kept bool `json:"kept,omitempty"`
	// Field is the path of the first field that is wrong, and Message says what is.
	Field   string `json:"field,omitempty"`
	Message string `json:"message,omitempty"`
	// Errors are all that is wrong, the first included; not there where it is one thing.
	Errors   []ManifestError `json:"errors,omitempty"`
	Warnings []string        `json:"warnings,omitempty"`
	// Since is when the verdict was first given; not there where no agent gave it.
	Since time.Time `json:"since,omitzero"`
}

// ManifestError is one thing that is wrong with an object of a manifest.
type ManifestError struct {
	Line    int    `json:"line,omitempty"`
	Field   string `json:"field,omitempty"`
	Message string `json:"message"`
}

// ManifestList is the answer of [PathManifests].
type ManifestList struct {
	Items []Manifest `json:"items"`
}

// Image is an image of the runtime's store.
type Image struct {
	ID      string   `json:"id"`
	Tags    []string `json:"tags,omitempty"`
	Digests []string `json:"digests,omitempty"`
	// Size is in bytes.
	Size   uint64 `json:"size"`
	Pinned bool   `json:"pinned,omitempty"`
}

// Pull is the getting of an image that is under way or has failed and is tried again.
type Pull struct {
	Image string    `json:"image"`
	Since time.Time `json:"since"`
	// Waiters are the pods that want it.
	Waiters int `json:"waiters,omitempty"`
	// State is Queued, Pulling, Unpacking (all has come), Stalled (nothing has come for a while, or the runtime does not say and it lasts very long) or BackOff
	// (failed and tried again).
	State string `json:"state"`
	// Done and Total are bytes, compressed as the registry has them; Total is 0 where they are not known.
	Done  int64 `json:"done,omitempty"`
	Total int64 `json:"total,omitempty"`
	// Message is the last error.
	Message string     `json:"message,omitempty"`
	RetryAt *time.Time `json:"retryAt,omitempty"`
}

// Images is the answer of [PathImages].
type Images struct {
	Items []Image `json:"items"`
	Pulls []Pull  `json:"pulls"`
}

// Version is the answer of [PathVersion].
type Version struct {
	Version        string `json:"version"`
	GoVersion      string `json:"goVersion,omitempty"`
	Node           string `json:"node,omitempty"`
	Runtime        string `json:"runtime,omitempty"`
	RuntimeVersion string `json:"runtimeVersion,omitempty"`
	// RuntimeError says why the runtime's version is not known.
	RuntimeError string `json:"runtimeError,omitempty"`
}

// EventList is the answer of [PathEvents].
type EventList = v1.EventList

// ContainerOf returns the container that an event is about, from a field path such as spec.containers{NAME}; empty where it is about none.
func ContainerOf(e *v1.Event) string {
	_, name, _ := strings.Cut(strings.TrimSuffix(e.InvolvedObject.FieldPath, "}"), "{")
	return name
}
