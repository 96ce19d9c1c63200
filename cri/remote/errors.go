package remote

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// nameReserved matches what runtimes say without a code when a sandbox or container of that name exists already: containerd's name
// registry, and CRI-O's.
var nameReserved = regexp.MustCompile(`name "?[^"]+"? is reserved( for |\b)|name \S+ is already in use|[nN]ame conflict`)

// lookups are the operations that only name an object by its id: there, and only there, a text that ends in "not found" means that object.
// Creating and starting also say "not found" about executables, devices and files.
var lookups = map[string]bool{
	"stop_podsandbox": true, "remove_podsandbox": true, "podsandbox_status": true,
	"stop_container": true, "remove_container": true, "container_status": true, "update_container": true,
	"reopen_container_log": true, "container_stats": true, "exec": true, "attach": true, "port_forward": true,
	"remove_image": true,
}

// classify maps a gRPC error to errdefs, once. The message stays the runtime's own, without gRPC's "rpc error: code = …" before it, because it is
// shown to users in statuses and events. Codes win over texts; texts are only consulted where the runtime gave no code, and for a name
// that is taken, which containerd from 2.4 reports as a failed precondition.
func classify(operation string, err error) error {
	if err == nil {
		return nil
	}
	st, isStatus := status.FromError(err)
	if isStatus && (st.Code() == codes.Unknown || st.Code() == codes.FailedPrecondition) {
		if class := classOf(operation, st.Message()); class != nil {
			return withClass(class, st.Message())
		}
	}
	if isStatus && st.Code() == codes.Unavailable {
		return withClass(errdefs.ErrUnavailable, plainly(st.Message()))
	}
	return errgrpc.ToNative(err)
}

// dialing matches what gRPC says of a socket that nobody answers on.
var dialing = regexp.MustCompile(`^connection error: desc = "transport: Error while dialing: dial unix (\S+): (?:connect: )?([^"]*)"$`)

// plainly says in plain words what gRPC says of a connection; what the runtime says stays as it is.
func plainly(message string) string {
	if m := dialing.FindStringSubmatch(message); m != nil {
		return fmt.Sprintf("the container runtime does not answer on %s (%s)", m[1], m[2])
	}
	if cause, ok := strings.CutPrefix(message, "error reading from server: "); ok {
		return fmt.Sprintf("the container runtime ended the connection (%s)", cause)
	}
	return message
}

// classOf recognises errors that runtimes send without the code that they mean; nil if it does not.
func classOf(operation, message string) error {
	switch {
	case (operation == "run_podsandbox" || operation == "create_container") && nameReserved.MatchString(message):
		return errdefs.ErrAlreadyExists
	case lookups[operation] && strings.HasSuffix(message, "not found"):
		return errdefs.ErrNotFound
	case strings.HasSuffix(message, "server is not initialized yet"): // containerd before 2.0, while its CRI plugin starts
		return errdefs.ErrUnavailable
	case operation == "exec_sync" && strings.HasSuffix(message, "context deadline exceeded"):
		return context.DeadlineExceeded
	}
	return nil
}

// withClass returns an error of the class that reads exactly as message.
func withClass(class error, message string) error {
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

// invalidf returns an invalid-argument error.
func invalidf(format string, args ...any) error {
	return withClass(errdefs.ErrInvalidArgument, fmt.Sprintf(format, args...))
}

// gone makes the removal of what is not there a success.
func gone(err error) error {
	if errdefs.IsNotFound(err) {
		return nil
	}
	return err
}

// errNoAnswer is the error of a runtime that answered without the part that was asked for.
var errNoAnswer = errors.New("the runtime's answer is empty")
