package generate

import (
	"errors"
	"fmt"

	v1 "k8s.io/api/core/v1"
)

// The reasons of a [ConfigError], spelled as in a container's waiting state or in a sync error of
// the kubelet.
const (
	// ReasonContainer is the waiting reason of a container that cannot be configured.
	ReasonContainer = "CreateContainerConfigError"
	// ReasonSandbox is the sync error of a pod whose sandbox cannot be configured.
	ReasonSandbox = "ConfigPodSandboxError"
)

// ConfigError says why a sandbox or a container cannot be configured. The cause may go away by
// itself (for instance, a missing ConfigMap appears), so a later sync tries again.
type ConfigError struct {
	// Reason is [ReasonContainer] or [ReasonSandbox].
	Reason string
	// Message is for the pod's status and events. It never holds a secret value, and never a path
	// of the host that the pod's author did not write.
	Message string
	// Field is the path in the pod of the field that the error is about. Detail says more than the
	// kubelet's message. Either may be empty, and both are for the pod's author, too.
	Field  string
	Detail string
	// Err is the cause, for the node's log only: it may name paths of the host. It may be nil.
	Err error
}

// Error returns the message, with detail and field if there are any. The cause is not for users of
// the API.
func (e *ConfigError) Error() string {
	text := e.Message
	if e.Detail != "" {
		text += ": " + e.Detail
	}
	if e.Field != "" {
		text += " (" + e.Field + ")"
	}
	return text
}

// Unwrap returns the cause, which may be nil.
func (e *ConfigError) Unwrap() error { return e.Err }

// containerError makes a [ConfigError] about a container.
func containerError(format string, args ...any) error {
	return &ConfigError{Reason: ReasonContainer, Message: fmt.Sprintf(format, args...)}
}

// sandboxError makes a [ConfigError] about a pod's sandbox.
func sandboxError(format string, args ...any) error {
	return &ConfigError{Reason: ReasonSandbox, Message: fmt.Sprintf(format, args...)}
}

// withReason turns err into a [ConfigError] with the reason, and keeps the text. If err is a
// ConfigError already, its cause is kept.
func withReason(reason string, err error) error {
	if err == nil {
		return nil
	}
	if ce, ok := errors.AsType[*ConfigError](err); ok {
		out := *ce
		out.Reason = reason
		return &out
	}
	return &ConfigError{Reason: reason, Message: err.Error()}
}

// podName writes a pod as the kubelet does in its messages: name_namespace(uid).
func podName(pod *v1.Pod) string {
	return fmt.Sprintf("%s_%s(%s)", pod.Name, pod.Namespace, pod.UID)
}
