// Package classify gives errors of a runtime's gRPC services their class, once, where they come in.
//
// Purpose: the contract of [github.com/berthd/berth/cri.Runtime] promises errors of the classes of
// github.com/containerd/errdefs. Every client of a runtime's socket classifies by the same rules.
//
// Truth owned: which text of which runtime means which class. Concurrency: everything here is pure.
package classify

import (
	"context"
	"fmt"
	"regexp"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// nameReserved matches what runtimes say without a code if a sandbox or container of that name
// exists already: containerd's name registry, and CRI-O's.
var nameReserved = regexp.MustCompile(
	`name "?[^"]+"? is reserved( for |\b)|name \S+ is already in use|[nN]ame conflict`)

// lookups are the operations that only name an object by its ID. For these operations, a text that
// ends in "not found" means that object. Creating and starting also say "not found" about
// executables, devices and files.
var lookups = map[string]bool{
	"stop_podsandbox": true, "remove_podsandbox": true, "podsandbox_status": true,
	"stop_container": true, "remove_container": true, "container_status": true, "update_container": true,
	"reopen_container_log": true, "container_stats": true, "exec": true, "attach": true, "port_forward": true,
	"remove_image": true,
}

// Error maps a gRPC error to errdefs; nil stays nil. operation is the call's name as in the label
// operation_type of kubelet_runtime_operations. The message stays the runtime's own, without gRPC's
// "rpc error: code = …" before it, because statuses and events show it to users. Codes take
// precedence over texts. Texts count only if the runtime gave no code, and for a name that is
// taken, which containerd from 2.4 reports as a failed precondition.
func Error(operation string, err error) error {
	if err == nil {
		return nil
	}
	st, isStatus := status.FromError(err)
	if isStatus && (st.Code() == codes.Unknown || st.Code() == codes.FailedPrecondition) {
		if class := classOf(operation, st.Message()); class != nil {
			return As(class, st.Message())
		}
	}
	if isStatus && st.Code() == codes.Unavailable {
		return As(errdefs.ErrUnavailable, plainly(st.Message()))
	}
	return errgrpc.ToNative(err)
}

// dialing matches gRPC's text for a socket on which nobody answers.
var dialing = regexp.MustCompile(
	`^connection error: desc = "transport: Error while dialing: dial unix (\S+): (?:connect: )?([^"]*)"$`)

// plainly translates gRPC's text about a connection into plain words. Texts of the runtime stay as
// they are.
func plainly(message string) string {
	if m := dialing.FindStringSubmatch(message); m != nil {
		return fmt.Sprintf("the container runtime does not answer on %s (%s)", m[1], m[2])
	}
	if cause, ok := strings.CutPrefix(message, "error reading from server: "); ok {
		return fmt.Sprintf("the container runtime ended the connection (%s)", cause)
	}
	return message
}

// classOf recognises errors that runtimes send without the code that they mean. It returns nil for
// all others.
func classOf(operation, message string) error {
	switch {
	case (operation == "run_podsandbox" || operation == "create_container") && nameReserved.MatchString(message):
		return errdefs.ErrAlreadyExists
	case lookups[operation] && strings.HasSuffix(message, "not found"):
		return errdefs.ErrNotFound
	case strings.HasSuffix(message, "server is not initialized yet"):
		// containerd before 2.0, while its CRI plugin starts
		return errdefs.ErrUnavailable
	case operation == "exec_sync" && strings.HasSuffix(message, "context deadline exceeded"),
		// containerd 1.6, whose answer to an ended call is sometimes faster than the call's end
		operation == "stop_container" && strings.HasSuffix(message, "context deadline exceeded: unknown"):
		return context.DeadlineExceeded
	}
	return nil
}

// As returns an error of the class with exactly this message.
func As(class error, message string) error {
	if m, ok := class.(interface{ WithMessage(string) error }); ok {
		return m.WithMessage(message)
	}
	return &classified{message: message, class: class}
}

// classified is an error of a class that cannot carry a message itself.
type classified struct {
	message string
	class   error
}

// Error returns the message.
func (e *classified) Error() string { return e.message }

// Unwrap returns the class.
func (e *classified) Unwrap() error { return e.class }

// Invalidf returns an invalid-argument error.
func Invalidf(format string, args ...any) error {
	return As(errdefs.ErrInvalidArgument, fmt.Sprintf(format, args...))
}
