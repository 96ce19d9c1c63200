package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
	"golang.org/x/term"
	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/remotecommand"

	"github.com/berthd/berth/client"
	"github.com/berthd/berth/client/api"
)

// streamOptions are the flags that exec and attach share.
type streamOptions struct {
	conn                 connection
	namespace, container string
	stdin, tty, quiet    bool
	// own says that the streams are those of the container's own process, which has a terminal or not.
	own bool
}

func (o *streamOptions) flags(cmd *cobra.Command) {
	o.conn.flag(cmd)
	f := cmd.Flags()
	namespaceFlag(cmd, &o.namespace)
	f.StringVarP(&o.container, "container", "c", "", "the container (default the pod's first)")
	f.BoolVarP(&o.stdin, "stdin", "i", false, "pass standard input on")
	f.BoolVarP(&o.tty, "tty", "t", false, "standard input is a terminal, and so is the other end")
	f.BoolVarP(&o.quiet, "quiet", "q", false, "print only what the container prints")
	_ = cmd.RegisterFlagCompletionFunc("container", completeContainers)
}

// dashes says how the flags of a command are kept apart from those of berth exec.
const dashes = "put -- before the command, so that its flags are its own: berth exec POD -- COMMAND [ARG...]"

func newExec() *cobra.Command {
	o := &streamOptions{}
	cmd := &cobra.Command{
		Use:   "exec [-it] POD[/CONTAINER] -- COMMAND [ARG...]",
		Short: "Run a command in a container",
		Long: `Run a command in a container. The exit code is that of the command.

With -it, Ctrl-C goes to the command. Without -t, Ctrl-C ends only berth exec: the container runtime keeps the
command running. The command is then at the end of its input, and its output is dropped.`,
		Example: `  berth exec web -- cat /etc/hosts
  berth exec web/sidecar -- ls /         # in another container than the first; or -c sidecar
  berth exec -i web -- sh -c 'cat >/tmp/x' </etc/hostname
  berth exec -it web -- sh               # a shell`,
		Args:              somePod,
		ValidArgsFunction: completeContainerPaths(&o.conn, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) < 2 {
				return wrongly("no command given: berth exec POD -- COMMAND [ARG...]")
			}
			err := o.run(cmd, args[0],
				func(ctx context.Context, c *client.Client, _ *v1.Pod, t client.Target, io client.Stdio) error {
					return c.Exec(ctx, t, args[1:], io)
				})
			if exit := (*exitError)(nil); cmd.Context().Err() != nil && errors.As(err, &exit) &&
				exit.code == interrupted && !o.quiet {
				fmt.Fprintln(cmd.ErrOrStderr(),
					"The command may go on in the container; with -it, Ctrl-C goes to the command.")
			}
			return err
		},
	}
	o.flags(cmd)
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		// behind the POD and a word of a command, the flag is that of the command
		if instead := insteadOfFlag(cmd.Name(), err); instead != "" && len(cmd.Flags().Args()) < 2 {
			return noFlag(cmd, err)
		}
		return fmt.Errorf("%w: %s", err, dashes)
	})
	return cmd
}

func newAttach() *cobra.Command {
	o := &streamOptions{own: true}
	cmd := &cobra.Command{
		Use:   "attach [-it] POD[/CONTAINER]",
		Short: "Connect with the process that runs in a container",
		Long: `Connect with the process that runs in a container. You see what the process prints from now on; -i also
sends your input. Ctrl-C ends the connection, and the process goes on.`,
		Example: `  berth attach web
  berth attach -it shell                 # for a container with stdin and tty`,
		Args:              onePod,
		ValidArgsFunction: completeContainerPaths(&o.conn, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if !o.quiet && o.tty {
				fmt.Fprintln(cmd.ErrOrStderr(), "If you don't see a command prompt, try pressing enter.")
			}
			return o.run(cmd, args[0], attach)
		},
	}
	o.flags(cmd)
	return cmd
}

// attach connects to a container's own process. A process with a terminal has no standard error.
func attach(ctx context.Context, c *client.Client, pod *v1.Pod, t client.Target, stdio client.Stdio) error {
	if api.HasTerminal(pod, t.Container) {
		stdio.Stderr = nil
	}
	return c.Attach(ctx, t, stdio)
}

type streamCall func(ctx context.Context, c *client.Client, pod *v1.Pod, t client.Target, io client.Stdio) error

// run finds the container, prepares the terminal and connects.
func (o *streamOptions) run(cmd *cobra.Command, arg string, call streamCall) error {
	ctx, c := cmd.Context(), o.conn.client()
	defer c.Close()
	pod, container, err := findContainer(ctx, c, arg, o.namespace, o.container)
	if err != nil {
		return err
	}
	container, note, err := chooseContainer(pod, container)
	switch {
	case err != nil && o.container != "" && len(cmd.Flags().Args()) > 1 && cmd.ArgsLenAtDash() < 0:
		return fmt.Errorf("%w; -c names a container: %s", err, dashes)
	case err != nil:
		return err
	}
	if note != "" && !o.quiet {
		fmt.Fprintln(cmd.ErrOrStderr(), note)
	}
	if o.own && o.tty && !api.HasTerminal(pod, container) {
		o.tty = false
		fmt.Fprintf(cmd.ErrOrStderr(), "container %s has no terminal (tty in the manifest): -t has no effect\n", container)
	}
	stdio := client.Stdio{Stdout: cmd.OutOrStdout(), Stderr: cmd.ErrOrStderr()}
	if o.stdin {
		stdio.Stdin = cmd.InOrStdin()
	}
	restore, err := o.terminal(&stdio, cmd.ErrOrStderr())
	if err != nil {
		return err
	}
	err = call(ctx, c, pod, client.Target{Namespace: pod.Namespace, Pod: pod.Name, Container: container}, stdio)
	restore()
	if exit := (*client.ExitError)(nil); errors.As(err, &exit) {
		if !o.quiet {
			fmt.Fprintln(cmd.ErrOrStderr(), exit.Error())
		}
		return &exitError{code: exit.Code}
	}
	return ended(ctx, err)
}

// noTerminal is kubectl's error if -t is given without a terminal.
const noTerminal = "Unable to use a TTY - input is not a terminal or the right kind of file"

// terminalOf returns the file descriptor of the input, if it is a terminal.
func terminalOf(in io.Reader) (fd int, ok bool) {
	file, ok := in.(*os.File)
	if !ok || !term.IsTerminal(int(file.Fd())) {
		return 0, false
	}
	return int(file.Fd()), true
}

// terminal makes the local terminal raw if -t is given, and watches its size.
func (o *streamOptions) terminal(stdio *client.Stdio, errOut io.Writer) (restore func(), err error) {
	restore = func() {}
	if !o.tty {
		return restore, nil
	}
	fd, ok := terminalOf(stdio.Stdin)
	if !ok {
		if o.stdin {
			fmt.Fprintln(errOut, noTerminal)
		}
		return restore, nil
	}
	stdio.TTY, stdio.Stderr = true, nil
	before, err := term.MakeRaw(fd)
	if err != nil {
		return restore, fmt.Errorf("making the terminal raw: %w", err)
	}
	sizes := watchSize(fd)
	stdio.Resize = sizes
	return func() {
		sizes.stop()
		_ = term.Restore(fd, before)
	}, nil
}

// sizeQueue returns the terminal's size: first the current one, and then each new one.
type sizeQueue struct {
	fd      int
	signals chan os.Signal
	done    chan struct{}
}

func watchSize(fd int) *sizeQueue {
	q := &sizeQueue{fd: fd, signals: make(chan os.Signal, 1), done: make(chan struct{})}
	signal.Notify(q.signals, unix.SIGWINCH)
	q.signals <- unix.SIGWINCH
	return q
}

// Next waits for the next size; nil at the end.
func (q *sizeQueue) Next() *remotecommand.TerminalSize {
	select {
	case <-q.done:
		return nil
	case <-q.signals:
	}
	width, height, err := term.GetSize(q.fd)
	if err != nil {
		return nil
	}
	return &remotecommand.TerminalSize{Width: uint16(width), Height: uint16(height)}
}

func (q *sizeQueue) stop() {
	signal.Stop(q.signals)
	close(q.done)
}
