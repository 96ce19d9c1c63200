package api

import (
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
	// Phase is the worker's: Running, Terminating or Terminated. Empty for a pod that was never accepted.
	Phase string `json:"phase,omitempty"`
	// WaitsFor says in one sentence what the pod waits for; empty if for nothing.
	WaitsFor string `json:"waitsFor,omitempty"`
	// Step is the step at which it waits.
	Step string `json:"step,omitempty"`
	// NextRetry is when the next pass is due if nothing happens before.
	NextRetry *time.Time `json:"nextRetry,omitempty"`
	// LastError is the latest failure of any step, whether overcome or not.
	LastError *Failure `json:"lastError,omitempty"`
	// Steps is the story, oldest first.
	Steps []Step `json:"steps"`
	// Manifest is the verdict on the pod's manifest where that was refused.
	Manifest *Manifest `json:"manifest,omitempty"`
}

// Failure is an error and when it was seen last.
type Failure struct {
	Step    string    `json:"step"`
	Message string    `json:"message"`
	Last    time.Time `json:"last"`
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
	// Field is the path of the first field that is wrong, and Message says what is.
	Field    string    `json:"field,omitempty"`
	Message  string    `json:"message,omitempty"`
	Warnings []string  `json:"warnings,omitempty"`
	Since    time.Time `json:"since"`
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
	// State is Queued, Pulling, Stalled (pulling for very long) or BackOff (failed and tried again).
	State string `json:"state"`
	// Message is the last error.
	Message string     `json:"message,omitempty"`
	RetryAt *time.Time `json:"retryAt,omitempty"`
}

// Images is the answer of [PathImages].
type Images struct {
	Items []Image `json:"items"`
	Pulls []Pull  `json:"pulls,omitempty"`
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
