package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	v1 "k8s.io/api/core/v1"
)

const (
	// failed is the exit code of a verb that failed.
	failed = 1
	// misused is the exit code of a verb that was called wrongly: an unknown verb or flag, an
	// unknown format, too few or too many arguments.
	misused = 2
)

// usageCode is the exit code for a verb that was called wrongly. The exit code of a run must not
// look like its pod's.
func usageCode(cmd *cobra.Command) int {
	if cmd.Name() == "run" {
		return cannotStart
	}
	return misused
}

// wrongCall is an error about a wrong call that was found after the verb had begun.
type wrongCall struct{ error }

// Unwrap returns the error itself.
func (e wrongCall) Unwrap() error { return e.error }

// wrongly returns an error about a wrong call.
func wrongly(format string, args ...any) error { return wrongCall{fmt.Errorf(format, args...)} }

// begins makes every verb set the result when it begins its work. An error before that is about the
// call.
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

// The exit codes of a run whose pod did not end by itself (Docker's).
const (
	// cannotStart means that berth could not start the pod.
	cannotStart = 125
	// cannotInvoke means that a container's command exists but cannot be executed.
	cannotInvoke = 126
	// notFound means that a container's command does not exist.
	notFound = 127
)

// reasonStartError is the termination reason of a container that could not be started. Its exit
// code has no meaning then.
const reasonStartError = "StartError"

// startErrorCode returns the exit code for a container that could not be started. It uses the
// runtime's message: runc and crun name the executable.
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

// failedStart returns the termination state of a container that could not be started, or nil if it
// started or may still start.
func failedStart(status *v1.ContainerStatus) *v1.ContainerStateTerminated {
	if t := status.State.Terminated; t != nil && t.Reason == reasonStartError {
		return t
	}
	if t := status.LastTerminationState.Terminated; status.State.Waiting != nil && t != nil &&
		t.Reason == reasonStartError {
		return t // a container that could not be started once is not waited for
	}
	return nil
}
