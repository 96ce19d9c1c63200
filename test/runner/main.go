// Command runner runs the checks of this repository and counts them: "runner lint unit integration", in that order, from the checkout.
//
// Its last line is "N passed, N failed". A linter counts as one check; of tests, those count that have no subtests, and a package that does not
// build or dies counts as one failure. It ends with 1 if anything failed or nothing ran.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		os.Exit(1)
	}
}

// errFailed says that a check failed, which the output has told already.
var errFailed = errors.New("checks failed")

func run(ctx context.Context, phases []string) error {
	all := map[string]func(context.Context, *summary) error{
		"lint": lint, "unit": unit, "integration": integration, "cluster": cluster, "fuzz": fuzz,
	}
	total := newSummary(os.Stdout)
	for _, name := range phases {
		phase, ok := all[name]
		if !ok {
			total.fail("", fmt.Sprintf("unknown phase %q: lint, unit, integration, cluster or fuzz", name))
			continue
		}
		fmt.Printf("== %s\n", name)
		if err := phase(ctx, total); err != nil {
			total.fail(name, err.Error())
		}
	}
	return total.report()
}
