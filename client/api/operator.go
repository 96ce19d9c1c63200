package api

// Restart, Stop and Start follow [PathPods]/NAMESPACE/POD/. A POST of a [RestartRequest] restarts
// containers and answers with [Restarted]. A POST of a [StopRequest] stops the pod until a POST to
// Start; both answer with [Operated].
const (
	Restart = "restart"
	Stop    = "stop"
	Start   = "start"
)

// RestartRequest asks for the restart of containers of a pod.
type RestartRequest struct {
	// Containers are the containers to restart. Empty means every container that can: the app
	// containers and the sidecars that run, or that wait for their back-off.
	Containers []string `json:"containers,omitempty"`
	// GraceSeconds replaces the pod's own grace period.
	GraceSeconds *int64 `json:"graceSeconds,omitempty"`
}

// Restarted names the containers that restart.
type Restarted struct {
	Containers []string `json:"containers"`
}

// StopRequest asks for a pod to be stopped.
type StopRequest struct {
	// GraceSeconds replaces the pod's own grace period. A second request can only shorten it.
	GraceSeconds *int64 `json:"graceSeconds,omitempty"`
}

// Operated is the answer to a request to stop or to start a pod.
type Operated struct {
	// Changed is false for the start of a pod that was not stopped.
	Changed bool `json:"changed"`
}
