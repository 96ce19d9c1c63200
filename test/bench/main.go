// Command bench is "make bench". It measures berth and bare CRI calls, and a kubelet if $KUBELET
// names one, and prints one table.
//
// Purpose: each column has a private containerd. On it another subject brings the same pod up and
// down: one busybox container on the bridge network. The subjects are the benchmark itself with
// bare CRI calls, berth, berth with the native runtime and without its pause processes ("native")
// or with them ("paused"), and a kubelet in standalone mode. In all columns the times are those of
// containerd's events, by containerd's own clock. A pod without a pause process has no sandbox in
// containerd: the end and the removal of its container count. How quickly pods come and go is
// measured by turns, so that other work of the machine affects all columns. What a node with pods
// costs, and how deaths and adoptions go, is measured for each column alone.
//
// With -growth the command is "make bench-growth". A column is then a number of pods that come to a
// new agent at once, on containerd or on the fake runtime, which this process serves: what the
// agent takes for each of them should be the same in all columns. A second table has what the
// agent's statistics cost, and how far they are from the kernel's.
//
// Truth owned: the rows and their aims, in rows.go, growth.go and scrape.go.
//
// Concurrency: one thing after another. Only a burst of bare calls runs in parallel.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/berthd/berth/test/env"
)

// sizes are how much is measured.
type sizes struct {
	// ones is how many single pods come and go, burst is how many pods are made at once, and rounds
	// is how often.
	ones, burst, rounds int
	// deaths is how many containers are killed. adoptions is how often the agent is killed.
	deaths, adoptions int
	// settle is the wait before a part that must not be disturbed. idle is how long the idle pods
	// are watched.
	settle, idle time.Duration
	// scrapes is how often statistics are asked for, once in each period.
	scrapes int
	period  time.Duration
	// stock leaves containerd's config unchanged.
	stock bool
}

var (
	full  = sizes{ones: 20, burst: 50, rounds: 3, deaths: 20, adoptions: 3, settle: 10 * time.Second, idle: time.Minute}
	quick = sizes{
		ones: 5, burst: 10, rounds: 1, deaths: 5, adoptions: 1, settle: 3 * time.Second, idle: 10 * time.Second,
	}
)

func main() {
	isQuick := flag.Bool("quick", false,
		"fewer pods and shorter waits; the aims are not for these numbers, and results.md stays as it is")
	asJSON := flag.Bool("json", false, "print JSON instead of the table")
	rounds := flag.Int("rounds", full.rounds, "how often many pods are made at once; the median counts")
	stock := flag.Bool("stock", false, "leave containerd's own polling of every container on (see bed.quieten)")
	only := flag.String("only", "", "measure only this column: bare, berth, native, paused or kubelet")
	isGrowth := flag.Bool("growth", false,
		"measure what more and more pods cost, and statistics; columns are 50, 100, 250, \"fake 50\" and so on")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	size := full
	size.rounds = max(1, *rounds)
	if *isQuick {
		size = quick
	}
	size.stock = *stock
	var err error
	switch {
	case os.Geteuid() != 0:
		err = errors.New("running pods needs root: use sudo")
	case *isGrowth:
		err = grow(ctx, growthOf(*isQuick), size.stock, *only, *asJSON)
	default:
		err = run(ctx, size, *only, *asJSON)
	}
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "make bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, size sizes, only string, asJSON bool) error {
	rep := newReport("bench", "results.md", size.stock)
	columns := wanted(only, newColumn(bareColumn, newBare), newColumn(berthColumn, newBerth),
		newColumn(nativeColumn, newBerth), newColumn(pausedColumn, newBerth), newColumn(kubeletColumn, newKubelet))
	if err := together(ctx, size, columns); err != nil {
		return err
	}
	for _, c := range columns {
		if err := on(ctx, c, size, (*bed).alone); err != nil {
			return err
		}
	}
	rep.tables = []table{{rows(size), columns}}
	return rep.finish(asJSON, size.burst == full.burst && only == "")
}

// wanted returns the columns to measure: the one with the name only, or all if it is empty. There
// is a kubelet if $KUBELET names one.
func wanted(only string, columns ...*column) []*column {
	return slices.DeleteFunc(columns, func(c *column) bool {
		return only != "" && only != c.Name || c.Name == kubeletColumn && os.Getenv(kubeletVariable) == ""
	})
}

// on makes a column's bed, measures on it and removes it.
func on(ctx context.Context, c *column, size sizes, measure func(*bed, context.Context) error) error {
	b, err := newBed(ctx, c, size)
	if err != nil {
		return err
	}
	if err := errors.Join(measure(b, ctx), b.close()); err != nil {
		return fmt.Errorf("measure %s: %w", c.Name, err)
	}
	return nil
}

// maker makes a column's subject on the column's bed.
type maker func(context.Context, *bed) (subject, error)

// bed is what one column works with: a runtime, its events, the subject that runs pods on it,
// and the values measured so far.
type bed struct {
	env     *env.Env
	watch   *watcher
	subject subject
	size    sizes
	out     *column
	// up and stopped are the times of single pods, and left are the pods that may not be gone yet.
	// bursts are the times of many pods, removals those until they were gone again, and costs what
	// the bursts cost.
	up, stopped, bursts, removals []time.Duration
	left                          []leaving
	costs                         []cost
}

func newBed(ctx context.Context, out *column, size sizes) (b *bed, err error) {
	b = &bed{size: size, out: out}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.close())
		}
	}()
	opts := env.Options{Native: out.native()}
	if out.fake {
		if opts.Endpoint, b.watch, err = newFake(ctx); err != nil {
			return nil, err
		}
	}
	if b.env, err = env.New(ctx, opts); err != nil {
		return nil, err
	}
	if !size.stock && !out.native() && !out.fake { // it is a setting of the CRI plugin
		if err := b.quieten(ctx); err != nil {
			return nil, err
		}
	}
	if !out.fake {
		if b.watch, err = newWatcher(b.env.Endpoint); err != nil {
			return nil, err
		}
	}
	b.subject, err = out.make(ctx, b)
	return b, err
}

// quieten makes containerd ask its shims for statistics once a day. Releases from 2.3 on ask every
// second by default, which would hide what an agent costs on an idle node. It is the same for all
// columns.
func (b *bed) quieten(ctx context.Context) error {
	const before = "restrict_oom_score_adj = true\n"
	file := filepath.Join(b.env.Dir, "containerd.toml")
	text, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("read containerd's config: %w", err)
	}
	if !strings.Contains(string(text), "stats_collect_period") {
		changed := strings.Replace(string(text), before, before+"  stats_collect_period = \"24h\"\n", 1)
		if err := os.WriteFile(file, []byte(changed), 0o600); err != nil {
			return fmt.Errorf("write containerd's config: %w", err)
		}
	}
	return b.env.Restart(ctx)
}

func (b *bed) close() error {
	var errs []error
	if b.subject != nil {
		errs = append(errs, b.subject.close())
	}
	if b.watch != nil {
		errs = append(errs, b.watch.close())
	}
	if b.env != nil {
		errs = append(errs, b.env.Close())
	}
	return errors.Join(errs...)
}

// say prints progress.
func (b *bed) say(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "%s  %-8s %s\n", time.Now().Format(time.TimeOnly), b.out.Name, fmt.Sprintf(format, args...))
}
