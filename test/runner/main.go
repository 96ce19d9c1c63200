// Command runner runs the checks of this repository: "runner lint unit integration", in that order,
// from the checkout.
//
// Purpose: gotestsum (pinned by test/tools) runs, shows and counts the tests of a phase. The runner
// says which tests a phase has, runs what is no Go test (linters, fuzz targets), and adds up the
// phases. A long output is often kept by its end alone, so that the runner repeats there what
// failed, with the first lines of what it said, which gotestsum cannot shorten. The last line is "N
// passed, N failed, N skipped". The runner ends with 1 if anything failed or nothing ran.
//
// Truth owned: the phases. Concurrency: one phase at a time; the phase cluster runs the tests of
// two modules beside each other.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		os.Exit(1)
	}
}

// errFailed says that a check failed, which the output has reported already.
var errFailed = errors.New("checks failed")

func run(ctx context.Context, phases []string) error {
	all := map[string]func(context.Context, *total) error{
		"lint": lint, "unit": unit, "crashes": crashes, "integration": integration, "cluster": cluster, "fuzz": fuzz,
	}
	sum := &total{out: os.Stdout}
	for _, name := range phases {
		phase, ok := all[name]
		if !ok {
			sum.fail("runner", fmt.Sprintf("unknown phase %q: lint, unit, crashes, integration, cluster or fuzz", name))
			continue
		}
		fmt.Printf("== %s\n", name)
		began := time.Now()
		if err := phase(ctx, sum); err != nil {
			sum.fail(name, err.Error())
		}
		fmt.Printf("== %s took %s\n\n", name, time.Since(began).Round(time.Second))
	}
	return sum.report()
}
