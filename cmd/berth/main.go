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
	cmd := newRoot()
	cmd.SetArgs(args)
	err := cmd.ExecuteContext(ctx)
	if exit := (*exitError)(nil); errors.As(err, &exit) {
		return exit.code
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		return 1
	}
	return 0
}

// exitError ends the process with a code of its own and says nothing: what there was to say has been said.
type exitError struct{ code int }

// Error names the code.
func (e *exitError) Error() string { return fmt.Sprintf("exit code %d", e.code) }
