package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	v1 "k8s.io/api/core/v1"
)

const (
	// failed is the exit code of a verb that could not do what it was asked to.
	failed = 1
	// misused is that of a verb that was called wrongly: an unknown verb or flag, a format that it does not have, too few or too many arguments.
	misused = 2
)

// usageCode is the exit code for a verb that was called wrongly. That of a run must not look like its pod's.
func usageCode(cmd *cobra.Command) int {
	if cmd.Name() == "run" {
		return cannotStart
	}
	return misused
}

// wrongCall is an error about how a verb was called that was found after it had begun.
type wrongCall struct{ error }

// Unwrap returns the error itself.
func (e wrongCall) Unwrap() error { return e.error }

// wrongly makes an error about how a verb was called.
func wrongly(format string, args ...any) error { return wrongCall{fmt.Errorf(format, args...)} }

// begins has every verb tell when it begins with its work: an error before that is about how it was called.
func begins(cmd *cobra.Command) *bool {
	began := new(bool)
	var wrap func(*cobra.Command)
	wrap = func(cmd *cobra.Command) {
		if run := cmd.RunE; run != nil {
			cmd.RunE = func(cmd *cobra.Command, args []string) error {
				*began = true
				return run(cmd, args)
			}
		}
		for _, verb := range cmd.Commands() {
			wrap(verb)
		}
	}
	wrap(cmd)
	return began
}

// The exit codes of a run whose pod did not come to an end of its own, Docker's.
const (
	// cannotStart says that berth could not start the pod.
	cannotStart = 125
	// cannotInvoke says that a container's command is there but cannot be executed.
	cannotInvoke = 126
	// notFound says that a container's command is not there.
	notFound = 127
)

// reasonStartError is what a container has ended with that could not be started; its exit code says nothing then.
const reasonStartError = "StartError"

// startErrorCode returns the exit code for a container that could not be started, by what the runtime says: runc and crun name the executable.
func startErrorCode(message string) int {
	text := strings.ToLower(message)
	has := func(parts ...string) bool {
		for _, part := range parts {
			if strings.Contains(text, part) {
				return true
			}
		}
		return false
	}
	switch {
	case !has(`exec: "`, "exec: `", "executable"):
		return cannotStart // mounts, the working directory and the like
	case has("not found", "no such file"):
		return notFound
	case has("permission denied", "exec format error", "is a directory"):
		return cannotInvoke
	}
	return cannotStart
}

// failedStart returns what a container could not be started with; nil where it could, or may still be.
func failedStart(status *v1.ContainerStatus) *v1.ContainerStateTerminated {
	if t := status.State.Terminated; t != nil && t.Reason == reasonStartError {
		return t
	}
	if t := status.LastTerminationState.Terminated; status.State.Waiting != nil && t != nil && t.Reason == reasonStartError {
		return t // what could not be started once is not waited for
	}
	return nil
}
