// Command berth is a node agent for Linux and its command line.
//
// Purpose: "berth agent" runs the daemon; the other verbs talk to it over its local socket. Each verb is a file; there is no logic here beyond turning
// flags into a call and its answer into text.
//
// Truth owned: none. Concurrency: main's goroutine, and what the called packages start and join.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"

	"golang.org/x/sys/unix"
)

// version is set by the build (-ldflags -X main.version=…).
var version = "devel"

func main() {
	os.Exit(run(os.Args[1:]))
}

// run runs one command line and returns the process's exit code.
func run(args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGINT, unix.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends what does not heed the first
	root := newRoot()
	began := begins(root)
	root.SetArgs(args)
	cmd, err := root.ExecuteContextC(ctx)
	exit, wrong := (*exitError)(nil), wrongCall{}
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		return exit.code
	}
	fmt.Fprintln(os.Stderr, "Error:", err)
	if *began && !errors.As(err, &wrong) {
		return failed
	}
	fmt.Fprintf(os.Stderr, "See \"%s --help\".\n", cmd.CommandPath())
	return usageCode(cmd)
}

// exitError ends the process with a code of its own and says nothing: what there was to say has been said.
type exitError struct{ code int }

// Error names the code.
func (e *exitError) Error() string { return fmt.Sprintf("exit code %d", e.code) }
