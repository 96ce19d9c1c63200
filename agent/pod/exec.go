package pod

import (
	"context"
	"regexp"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Executor runs a command in a container and waits for it.
type Executor interface {
	ExecSync(ctx context.Context, id string, cmd []string, timeout time.Duration) (*runtimeapi.ExecSyncResponse, error)
}

// ExecFunc runs a command in a container for a probe or a hook. It returns the command's exit code
// and output.
type ExecFunc = func(ctx context.Context, id string, cmd []string,
	timeout time.Duration) (exitCode int, output []byte, err error)

// Exec returns the function that runs commands of probes and hooks in containers. The same failure
// always gives the same error text.
func Exec(rt Executor) ExecFunc {
	return func(ctx context.Context, id string, cmd []string,
		timeout time.Duration,
	) (exitCode int, output []byte, err error) {
		resp, err := rt.ExecSync(ctx, id, cmd, timeout)
		if err != nil {
			return 0, nil, withoutExecID(err)
		}
		return int(resp.ExitCode), append(resp.Stdout, resp.Stderr...), nil
	}
}

// execID matches the id that containerd gives to each exec, as it stands in containerd's errors.
var execID = regexp.MustCompile(`( exec) "[0-9a-f]{64}"`)

// unnumbered is an error whose text is the same for every occurrence of the same failure.
type unnumbered struct {
	error

	text string
}

// Error is the text without the exec's id.
func (u *unnumbered) Error() string { return u.text }

// Unwrap returns the error as the runtime gave it.
func (u *unnumbered) Unwrap() error { return u.error }

// withoutExecID removes the exec's id from an error's text. With the id, every run of a failing
// probe would have its own event, and these events would crowd out the others.
func withoutExecID(err error) error {
	text := execID.ReplaceAllString(err.Error(), "$1")
	if text == err.Error() {
		return err
	}
	return &unnumbered{err, text}
}
