// Command run is "make run": it starts berth on the sample manifests, shows the pods coming up, and leaves nothing behind.
//
// It uses the host's containerd where that answers and its network is ready, else a private one. Ctrl-C ends it; with --once it ends by
// itself once every sample pod is ready and removed again: 0 if that came about, else 1 with the reason.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/berthd/berth/test/env"
)

// samplesDir has the manifests, in the checkout.
const samplesDir = "configs/samples/manifests"

// errInterrupted says that the user ended it, which is the usual end without --once.
var errInterrupted = errors.New("interrupted")

// options are the command's flags.
type options struct {
	once     bool
	endpoint string
	version  string
	timeout  time.Duration
}

func main() {
	var opts options
	flag.BoolVar(&opts.once, "once", false, "end when every pod is ready and removed again")
	flag.StringVar(&opts.endpoint, "endpoint", "unix:///run/containerd/containerd.sock", "the host's containerd; empty: always a private one")
	flag.StringVar(&opts.version, "containerd", env.Containerd24, "the private containerd: 2.4 or debian")
	flag.DurationVar(&opts.timeout, "timeout", 2*time.Minute, "how long the pods may take with --once")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	err := run(ctx, opts)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "make run:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, opts options) error {
	if os.Geteuid() != 0 {
		return errors.New("running pods needs root: use sudo")
	}
	rt, err := openRuntime(ctx, opts)
	if err != nil {
		return err
	}
	if err := errors.Join(runSamples(ctx, rt, opts), rt.close()); err != nil {
		return err
	}
	fmt.Println("nothing is left")
	return nil
}

// runSamples runs the sample pods until the user, or with once their readiness, ends it, and removes them.
func runSamples(ctx context.Context, rt *hostRuntime, opts options) error {
	manifests := filepath.Join(rt.env.Checkout, samplesDir)
	samples, err := readSamples(manifests)
	if err != nil {
		return err
	}
	agent, err := startAgent(ctx, rt, manifests)
	if err != nil {
		return err
	}
	show := newBoard(os.Stdout, samples)
	err = watch(ctx, agent, show, opts)
	interrupted := errors.Is(err, errInterrupted)
	if interrupted && !opts.once {
		err = nil
	}
	if err != nil && !interrupted {
		fmt.Fprintf(os.Stderr, "the end of the agent's log:\n%s\n", agent.LogTail())
	}
	fmt.Println("removing the pods")
	return errors.Join(err, drain(rt, agent))
}

// startAgent starts berth on a manifest folder.
func startAgent(ctx context.Context, rt *hostRuntime, manifests string) (*env.Agent, error) {
	agent, err := rt.env.NewAgent(ctx, env.AgentOptions{
		Kubelet: fmt.Sprintf("staticPodPath: %q\ncgroupDriver: %s\n", manifests, rt.cgroupDriver),
	})
	if err != nil {
		return nil, err
	}
	return agent, agent.Start()
}

// watch shows the pods until the context ends, or with once until all are ready.
func watch(ctx context.Context, agent *env.Agent, show *board, opts options) error {
	deadline := time.Now().Add(opts.timeout)
	greeted := false
	for {
		pods, err := agent.Pods(ctx)
		if ctx.Err() != nil {
			return errInterrupted
		}
		if err == nil {
			show.update(pods)
		}
		if show.ready() && !greeted {
			greeted = true
			if err := greet(ctx, agent, pods, opts); err != nil || opts.once {
				return err
			}
			show.leave()
		}
		switch {
		case !agent.Running():
			return errors.New("the agent has ended by itself")
		case opts.once && time.Now().After(deadline):
			return errors.Join(fmt.Errorf("not every pod became ready within %s\n%s", opts.timeout, env.Describe(pods)), err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(50 * time.Millisecond):
		}
	}
}
