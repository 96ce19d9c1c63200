package cni

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/version"
	"golang.org/x/sys/unix"

	"github.com/berthd/berth/internal/head"
	"github.com/berthd/berth/internal/retry"
)

const (
	// maxResult and maxStderr bound what is kept of a plugin's output, in bytes. A result is some
	// kilobytes at most; of the standard error only a line for a message is wanted.
	maxResult, maxStderr = 1 << 20, 1 << 10
	// pipeDelay is how long a plugin's pipes are still read after the plugin has ended or was
	// killed. A child of the plugin may hold them open forever.
	pipeDelay = time.Second
	// busyTries and busyDelay are how often, and after which time, a plugin is started that somebody
	// is just writing (an upgrade of the plugins).
	busyTries, busyDelay = 5, 200 * time.Millisecond
)

// pluginExec runs plugins for libcni. In contrast to libcni's own way, a run has a time limit, its
// output has a size limit, a plugin that does not end is killed with its children, and every error
// names the plugin and the command.
type pluginExec struct {
	timeout time.Duration
	version.PluginDecoder
}

var _ invoke.Exec = (*pluginExec)(nil)

// FindInPath implements [invoke.Exec].
func (e *pluginExec) FindInPath(plugin string, paths []string) (string, error) {
	path, err := invoke.FindInPath(plugin, paths)
	if err != nil {
		return "", missing(plugin, paths)
	}
	return path, nil
}

// missing says that a plugin is nowhere.
func missing(plugin string, paths []string) error {
	return fmt.Errorf("CNI plugin %q is not in %s: install it there", plugin, strings.Join(paths, " or "))
}

// ExecPlugin implements [invoke.Exec]. A plugin's own error is a [types.Error] in the chain.
func (e *pluginExec) ExecPlugin(ctx context.Context, path string, stdin []byte, environ []string) ([]byte, error) {
	name, command := filepath.Base(path), commandOf(environ)
	ctx, cancel := context.WithTimeoutCause(ctx, e.timeout, errTooSlow)
	defer cancel()
	stdout, stderr := &head.Buffer{Most: maxResult}, &head.Buffer{Most: maxStderr}
	err := start(ctx, func() *exec.Cmd {
		cmd := exec.CommandContext(ctx, path)
		cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = environ, bytes.NewReader(stdin), stdout, stderr
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		cmd.Cancel = func() error { return unix.Kill(-cmd.Process.Pid, unix.SIGKILL) }
		cmd.WaitDelay = pipeDelay
		return cmd
	})
	switch {
	case errors.Is(context.Cause(ctx), errTooSlow):
		return nil, fmt.Errorf("CNI plugin %q did not end its %s within %s and was killed%s: %w", name, command,
			e.timeout, said(stderr), context.DeadlineExceeded)
	case ctx.Err() != nil:
		return nil, fmt.Errorf("CNI plugin %q was killed during its %s: %w", name, command, ctx.Err())
	case err != nil && !errors.Is(err, exec.ErrWaitDelay):
		return nil, fmt.Errorf("CNI plugin %q failed its %s: %w%s", name, command, pluginError(err, stdout), said(stderr))
	case stdout.Cut:
		return nil, fmt.Errorf("CNI plugin %q answered its %s with more than %d bytes", name, command, maxResult)
	case command == "ADD" && !isObject(stdout.Data):
		return nil, fmt.Errorf("CNI plugin %q answered its ADD with %s, want a JSON object%s", name,
			quoted(stdout.Data), said(stderr))
	}
	return stdout.Data, nil
}

// errTooSlow is why a plugin's context ends if the plugin takes too long.
var errTooSlow = errors.New("the plugin took too long")

// start runs a command, again if the file is just being written.
func start(ctx context.Context, command func() *exec.Cmd) error {
	for try := 1; ; try++ {
		err := command().Run()
		if !errors.Is(err, unix.ETXTBSY) || try == busyTries || !retry.Sleep(ctx, busyDelay) {
			return err
		}
	}
}

// commandOf returns the CNI command among the variables: ADD, DEL and so on.
func commandOf(environ []string) string {
	const key = "CNI_COMMAND="
	// The last one counts, as for the plugin.
	for _, e := range slices.Backward(environ) {
		if command, ok := strings.CutPrefix(e, key); ok {
			return command
		}
	}
	return "command"
}

// pluginError returns what a plugin that failed says of itself on its standard output, or else how
// it ended.
func pluginError(ended error, stdout *head.Buffer) error {
	said := &types.Error{}
	if err := json.Unmarshal(stdout.Data, said); err != nil || said.Msg == "" {
		if len(bytes.TrimSpace(stdout.Data)) == 0 {
			return ended
		}
		return fmt.Errorf("%w, and said %s", ended, quoted(stdout.Data))
	}
	return said
}

// said returns what a plugin wrote to its standard error, for the end of a message.
func said(stderr *head.Buffer) string {
	text := strings.TrimSpace(string(stderr.Data))
	if text == "" {
		return ""
	}
	return fmt.Sprintf(" (on its standard error: %q)", text)
}

// quoted returns the beginning of an answer for a message.
func quoted(answer []byte) string {
	const most = 200
	if len(bytes.TrimSpace(answer)) == 0 {
		return "nothing"
	}
	if len(answer) > most {
		return fmt.Sprintf("%q…", answer[:most])
	}
	return fmt.Sprintf("%q", answer)
}

func isObject(data []byte) bool {
	var object map[string]any
	return json.Unmarshal(data, &object) == nil && object != nil
}
