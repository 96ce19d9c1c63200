package api

import (
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// The paths of this package's types.
const (
	PathPods      = "/berth/v1/pods"
	PathWhy       = "/berth/v1/why/"
	PathManifests = "/berth/v1/manifests"
	PathEvents    = "/berth/v1/events"
	PathImages    = "/berth/v1/images"
	PathVersion   = "/berth/v1/version"
	PathAdmission = "/berth/v1/admission"
)

// Since is a parameter of [PathEvents]: a time in the format of RFC 3339. The answer then has the
// events since that time, also those before the agent's start. Previous is a parameter of
// [PathWhy]: the answer is the last life of the pod before the present one.
const (
	Since    = "since"
	Previous = "previous"
)

// ImageName is a parameter of a DELETE of [PathImages]: a name or an ID of the image to remove. The
// answer is the removed [Image].
const ImageName = "name"

// PathImagesPrune takes a POST of a [PruneRequest], removes the unused images, and answers with
// [PrunedImages].
const PathImagesPrune = PathImages + "/prune"

// EphemeralContainers follows [PathPods]/NAMESPACE/POD/. A POST of a v1.EphemeralContainer adds it
// to the pod.
const EphemeralContainers = "ephemeralcontainers"

// PodList is the answer of [PathPods].
type PodList struct {
	Items []PodSummary `json:"items"`
}

// Change is one message of a watch of [PathPods]: ADDED, MODIFIED or DELETED, as in the Kubernetes
// API.
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

// Why is the answer of [PathWhy]NAMESPACE/POD: a pod's timeline and what the pod waits for.
type Why struct {
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	UID       types.UID `json:"uid,omitempty"`
	// Status is the status of the summary, which "berth ps" shows.
	Status string `json:"status"`
	// Phase is the pod's phase. WorkerPhase is the phase of the agent's worker for the pod: Running
	// (the worker brings the pod up and keeps it up, whatever the pod's own phase is), Terminating
	// or Terminated. Both are empty for a pod that was never accepted.
	Phase       v1.PodPhase `json:"phase,omitempty"`
	WorkerPhase string      `json:"workerPhase,omitempty"`
	// WaitsFor is one sentence that says what the pod waits for; empty if it waits for nothing.
	WaitsFor string `json:"waitsFor,omitempty"`
	// Ended says why a pod has failed: its own reason and message, and each container with an exit
	// code other than 0.
	Ended string `json:"ended,omitempty"`
	// Step is the step at which the pod waits.
	Step string `json:"step,omitempty"`
	// NextRetry is when the next sync is due if nothing happens before.
	NextRetry *time.Time `json:"nextRetry,omitempty"`
	// LastError is the latest failure of any step, also of one that has succeeded since.
	LastError *Failure `json:"lastError,omitempty"`
	// LastChange is what somebody last changed about the pod: its manifest, or an object that it
	// uses.
	LastChange *Edit `json:"lastChange,omitempty"`
	// Until is when the life ended that the answer is about, or when it was last heard of; nil for
	// the present one.
	Until *time.Time `json:"until,omitempty"`
	// Steps is the timeline, oldest first.
	Steps []Step `json:"steps"`
	// Crashed are the containers that ended with an error and are to run again, or made the pod
	// fail: the ends of their logs may say why.
	Crashed []string `json:"crashed,omitempty"`
	// Warnings are the warnings about the pod's manifest, and about programs of the node that listen
	// on the pod's host ports.
	Warnings []string `json:"warnings,omitempty"`
	// Manifest is the validation result of the pod's manifest, if that was refused. If the pod
	// exists nevertheless, it has the manifest's last good version.
	Manifest *Manifest `json:"manifest,omitempty"`
}

// Edit is a change that somebody made, and when the agent saw it.
type Edit struct {
	Message string    `json:"message"`
	At      time.Time `json:"at"`
}

// Failure is an error and when it was last seen.
type Failure struct {
	Step string `json:"step"`
	// Container is the failing container; empty if the failure is not about one container.
	Container string    `json:"container,omitempty"`
	Message   string    `json:"message"`
	Last      time.Time `json:"last"`
	// Count is the number of failures in a row.
	Count int `json:"count"`
	// Overcome is true once the step has succeeded again.
	Overcome bool `json:"overcome,omitempty"`
}

// Step is the result of one step in one sync, or in several syncs with the same result.
type Step struct {
	Step  string    `json:"step"`
	Begin time.Time `json:"begin"`
	End   time.Time `json:"end"`
	// Last is when a sync last had this result. Count is the number of syncs in a row with it.
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

// Manifest is the validation result of one document of a manifest file.
type Manifest struct {
	File string `json:"file"`
	// Document is the number of the document in the file, counted from 1; 0 is the file as a whole.
	Document  int       `json:"document,omitempty"`
	Line      int       `json:"line,omitempty"`
	Kind      string    `json:"kind,omitempty"`
	Namespace string    `json:"namespace,omitempty"`
	Name      string    `json:"name,omitempty"`
	UID       types.UID `json:"uid,omitempty"`
	Accepted  bool      `json:"accepted"`
	// Kept says that an earlier version of the object is used, because the current one is refused
	// or cannot be read. The current version may have an entry of its own.
	Kept bool `json:"kept,omitempty"`
	// Field is the path of the first wrong field, and Message says what is wrong.
	Field   string `json:"field,omitempty"`
	Message string `json:"message,omitempty"`
	// Errors are all errors, including the first one. It is empty if there is only one.
	Errors   []ManifestError `json:"errors,omitempty"`
	Warnings []string        `json:"warnings,omitempty"`
	// Since is when the manifest first had this result; zero if the result is not an agent's.
	Since time.Time `json:"since,omitzero"`
}

// ManifestError is one error in an object of a manifest.
type ManifestError struct {
	Line    int    `json:"line,omitempty"`
	Field   string `json:"field,omitempty"`
	Message string `json:"message"`
}

// ManifestList is the answer of [PathManifests].
type ManifestList struct {
	Items []Manifest `json:"items"`
	// Ignored are the files of the manifest directory that the agent does not read.
	Ignored []IgnoredFile `json:"ignored,omitempty"`
}

// IgnoredFile is a file, or a directory, that the agent does not read, and why.
type IgnoredFile struct {
	File string `json:"file"`
	Why  string `json:"why"`
}

// Image is an image in the runtime's store.
type Image struct {
	ID      string   `json:"id"`
	Tags    []string `json:"tags,omitempty"`
	Digests []string `json:"digests,omitempty"`
	// Size is in bytes.
	Size uint64 `json:"size"`
	// Pinned says that the image stays although nothing uses it, and PinnedBy why.
	Pinned   bool   `json:"pinned,omitempty"`
	PinnedBy string `json:"pinnedBy,omitempty"`
	// InUse says that a container has the image, or that a pod needs it, and UsedBy names one.
	// LastUsed is when the agent last saw that; zero if it never did.
	InUse    bool      `json:"inUse,omitempty"`
	UsedBy   string    `json:"usedBy,omitempty"`
	LastUsed time.Time `json:"lastUsed,omitzero"`
}

// Pull is a pull of an image that is running, or that has failed and will be tried again.
type Pull struct {
	Image string    `json:"image"`
	Since time.Time `json:"since"`
	// Waiters is the number of pods that wait for the image.
	Waiters int `json:"waiters,omitempty"`
	// State is Queued, Pulling, Unpacking (everything has arrived), Stalled (nothing has arrived
	// for a while, or the runtime does not report progress and the pull takes very long) or BackOff
	// (failed, will be tried again).
	State string `json:"state"`
	// Done and Total are in bytes, compressed as in the registry. Total is 0 if it is not known.
	Done  int64 `json:"done,omitempty"`
	Total int64 `json:"total,omitempty"`
	// Message is the last error.
	Message string     `json:"message,omitempty"`
	RetryAt *time.Time `json:"retryAt,omitempty"`
}

// Archive is a file of the images directory.
type Archive struct {
	Path string `json:"path"`
	// State is Imported, Failed, or Waiting (the file is still being written, or its import has not
	// ended).
	State string `json:"state"`
	// Images are the names that the archive gave images; of a failed one, those that it gave
	// before.
	Images []string `json:"images,omitempty"`
	// Error is why the import failed.
	Error string `json:"error,omitempty"`
}

// The states of an [Archive].
const (
	ArchiveImported = "Imported"
	ArchiveFailed   = "Failed"
	ArchiveWaiting  = "Waiting"
)

// Images is the answer of [PathImages].
type Images struct {
	Items []Image `json:"items"`
	Pulls []Pull  `json:"pulls"`
	// Archives are the files of the images directory.
	Archives []Archive `json:"archives,omitempty"`
}

// PathImagesPull takes a POST of a [PullRequest], pulls the image, and answers with its [Image]
// when it is there. A caller that goes away gives up the pull.
const PathImagesPull = PathImages + "/pull"

// PullRequest is the body of a request to [PathImagesPull].
type PullRequest struct {
	Image string `json:"image"`
}

// PruneRequest is the body of a request to [PathImagesPrune].
type PruneRequest struct {
	// DryRun makes the agent only say which images it would remove.
	DryRun bool `json:"dryRun,omitempty"`
}

// PrunedImages is the answer of [PathImagesPrune].
type PrunedImages struct {
	// Items are the removed images or, in a dry run, those that would be.
	Items []Image `json:"items"`
	// Error says why other images could not be removed.
	Error string `json:"error,omitempty"`
}

// Version is the answer of [PathVersion].
type Version struct {
	Version   string `json:"version"`
	GoVersion string `json:"goVersion,omitempty"`
	Node      string `json:"node,omitempty"`
	// RootDir is the agent's root directory. No two agents have the same one.
	RootDir        string `json:"rootDir,omitempty"`
	Runtime        string `json:"runtime,omitempty"`
	RuntimeVersion string `json:"runtimeVersion,omitempty"`
	// RuntimeError says why the runtime's version is not known.
	RuntimeError string `json:"runtimeError,omitempty"`
}

// AdmissionRequest is what a POST to [PathAdmission] asks: which of these pods would be refused.
type AdmissionRequest struct {
	// Pods are new pods, or new versions of the node's pods.
	Pods []v1.Pod `json:"pods"`
	// Leaving are the namespaces and names of pods that would be gone then, as NAMESPACE/NAME.
	Leaving []string `json:"leaving,omitempty"`
}

// Admission is the answer of [PathAdmission].
type Admission struct {
	Refused []Refusal `json:"refused"`
}

// Refusal says why a pod would be refused, as the status of the pod would say it.
type Refusal struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Reason    string `json:"reason"`
	Message   string `json:"message"`
}

// EventList is the answer of [PathEvents].
type EventList = v1.EventList

// ContainerOf returns the container of an event, from a field path such as spec.containers{NAME};
// empty if the event is not about a container.
func ContainerOf(e *v1.Event) string {
	_, name, _ := strings.Cut(strings.TrimSuffix(e.InvolvedObject.FieldPath, "}"), "{")
	return name
}
