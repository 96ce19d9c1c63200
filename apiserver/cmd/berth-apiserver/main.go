// Command berth-apiserver is the bundled API server and its command line.
//
// Purpose: it gives the process's arguments and signals to package apiserver. Truth owned: none.
// Concurrency: main's goroutine.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/berthd/berth/apiserver"
)

// version is set by the build (-ldflags -X main.version=…).
var version = "devel"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal kills a process that ignores the first one
	err := apiserver.NewCommand(version).ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "berth-apiserver:", err)
		if errors.As(err, new(apiserver.UsageError)) {
			os.Exit(2)
		}
		os.Exit(1)
	}
}
