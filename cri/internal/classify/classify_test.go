package classify

import (
	"context"
	"errors"
	"testing"

	"github.com/containerd/errdefs"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func TestError(t *testing.T) {
	const reserved = `failed to reserve sandbox name "a_b_c_0": name "a_b_c_0" is reserved for "0123"`
	for _, c := range []struct {
		operation string
		code      codes.Code
		message   string
		want      error
	}{
		{"container_status", codes.NotFound, "gone", errdefs.ErrNotFound},
		{"container_status", codes.Unavailable, "error reading from server: EOF", errdefs.ErrUnavailable},
		{"container_status", codes.Unimplemented, "unknown service", errdefs.ErrNotImplemented},
		{"container_status", codes.Canceled, "context canceled", context.Canceled},
		{"container_status", codes.DeadlineExceeded, "context deadline exceeded", context.DeadlineExceeded},
		{"run_podsandbox", codes.AlreadyExists, "x", errdefs.ErrAlreadyExists},
		{"run_podsandbox", codes.Unknown, reserved, errdefs.ErrAlreadyExists},
		{"create_container", codes.FailedPrecondition, reserved, errdefs.ErrAlreadyExists},
		{
			"create_container", codes.Unknown, "error reserving ctr name k8s_x for id 0: name is reserved",
			errdefs.ErrAlreadyExists,
		},
		{"start_container", codes.Unknown, reserved, errdefs.ErrUnknown},
		{
			"start_container", codes.FailedPrecondition, "container is in CONTAINER_EXITED state",
			errdefs.ErrFailedPrecondition,
		},
		{"stop_container", codes.Unknown, `could not find container "x": not found`, errdefs.ErrNotFound},
		{"start_container", codes.Unknown, "exec: no such file: not found", errdefs.ErrUnknown},
		{"create_container", codes.Unknown, "device: not found", errdefs.ErrUnknown},
		{"exec_sync", codes.Unknown, `exec: "nope": executable file not found in $PATH`, errdefs.ErrUnknown},
		{"exec_sync", codes.Unknown, "timeout 1s exceeded: context deadline exceeded", context.DeadlineExceeded},
		{
			"stop_container", codes.Unknown, `failed to stop container "x": context deadline exceeded: unknown`,
			context.DeadlineExceeded,
		},
		{"pull_image", codes.Unknown, "failed to pull: context deadline exceeded", errdefs.ErrUnknown},
		{"list_containers", codes.Unknown, "server is not initialized yet", errdefs.ErrUnavailable},
		{"list_containers", codes.Unknown, "boom", errdefs.ErrUnknown},
	} {
		err := Error(c.operation, status.Error(c.code, c.message))
		for _, class := range []error{
			errdefs.ErrNotFound, errdefs.ErrUnavailable, errdefs.ErrNotImplemented, context.Canceled,
			context.DeadlineExceeded,
			errdefs.ErrAlreadyExists, errdefs.ErrFailedPrecondition, errdefs.ErrUnknown,
		} {
			if got := errorsIs(err, class); got != errors.Is(class, c.want) {
				t.Errorf("%s, %s %q: is %v: %v, want only %v", c.operation, c.code, c.message, class, got, c.want)
			}
		}
		if want := plainly(c.message); err.Error() != want {
			t.Errorf("%s: message is %q, want %q", c.operation, err.Error(), want)
		}
	}
	if err := Error("version", nil); err != nil {
		t.Errorf("no error became %v", err)
	}
}

func TestPlainly(t *testing.T) {
	const dial, silent = `connection error: desc = "transport: Error while dialing: dial unix /run/c.sock: `,
		"the container runtime does not answer on /run/c.sock "
	const pull = "failed to pull: dial tcp 127.0.0.1:5000: connect: connection refused"
	for in, want := range map[string]string{
		dial + `connect: no such file or directory"`: silent + "(no such file or directory)",
		dial + `i/o timeout"`:                        silent + "(i/o timeout)",
		"error reading from server: EOF":             "the container runtime ended the connection (EOF)",
		pull:                                         pull,
	} {
		if got := plainly(in); got != want {
			t.Errorf("%s: %q, want %q", in, got, want)
		}
	}
}

// errorsIs asks as callers do.
func errorsIs(err, class error) bool {
	return map[error]func(error) bool{
		errdefs.ErrNotFound: errdefs.IsNotFound, errdefs.ErrUnavailable: errdefs.IsUnavailable,
		errdefs.ErrNotImplemented: errdefs.IsNotImplemented, context.Canceled: errdefs.IsCanceled,
		context.DeadlineExceeded: errdefs.IsDeadlineExceeded, errdefs.ErrAlreadyExists: errdefs.IsAlreadyExists,
		errdefs.ErrFailedPrecondition: errdefs.IsFailedPrecondition, errdefs.ErrUnknown: errdefs.IsUnknown,
	}[class](err)
}
