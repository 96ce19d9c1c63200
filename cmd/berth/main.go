// Command berth is a node agent for Linux and its command line.
//
// Purpose: "berth agent" runs the daemon, package agent, whose doc (agent/doc.go) says where what
// is done; the other verbs call it over its local socket. Each verb is a file. It has no logic but
// to convert flags to a call, and the answer to text.
//
// Truth owned: none. Concurrency: main's goroutine, and the goroutines that the called packages
// start and join.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"

	"golang.org/x/sys/unix"

	"github.com/berthd/berth/agent/volumes"
	"github.com/berthd/berth/client/show"
)

// version is set by the build (-ldflags -X main.version=…).
var version = "devel"

func main() {
	if code, own := volumes.RunApart(os.Args); own {
		os.Exit(code)
	}
	os.Exit(run(os.Args[1:]))
}

// run runs one command line and returns the process's exit code.
func run(args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGINT, unix.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal kills a process that ignores the first one
	root := newRoot()
	began := begins(root)
	root.SetArgs(args)
	out := &lockedWriter{w: os.Stdout}
	root.SetOut(out)
	cmd, err := root.ExecuteContextC(ctx)
	if wrote := out.err(); wrote != nil && err == nil {
		*began, err = true, fmt.Errorf("writing the output: %w", wrote)
	}
	exit, wrong := (*exitError)(nil), wrongCall{}
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		return exit.code
	}
	fmt.Fprintln(os.Stderr, "Error:", show.CleanLines(err.Error())) // it may have words of a container
	if *began && !errors.As(err, &wrong) {
		return failed
	}
	fmt.Fprintf(os.Stderr, "See \"%s --help\".\n", cmd.CommandPath())
	return usageCode(cmd)
}

// exitError ends the process with its own exit code and prints nothing: the message was printed
// before.
type exitError struct{ code int }

// Error returns a text with the code.
func (e *exitError) Error() string { return fmt.Sprintf("exit code %d", e.code) }
