// Command run is "make run": it starts berth with the sample manifests, shows the pods while they
// start, and leaves nothing behind.
//
// It uses the host's containerd if it answers and its network is ready, else a private one. With
// --api the pods are those of a bundled API server. Ctrl-C ends the command. With --once it ends by
// itself when every sample pod was ready and is removed again. Its exit code is then 0, or 1 with
// the reason if that failed.
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
	"github.com/berthd/berth/test/images"
)

// samplesDir is the folder of the manifests, in the checkout.
const samplesDir = "configs/samples/manifests"

// errInterrupted reports that the user ended the command, which is the usual end without --once.
var errInterrupted = errors.New("interrupted")

// options are the command's flags.
type options struct {
	once     bool
	endpoint string
	version  string
	api      string
	timeout  time.Duration
}

func main() {
	var opts options
	flag.BoolVar(&opts.once, "once", false, "end when every pod is ready and removed again")
	flag.StringVar(&opts.endpoint, "endpoint", "unix:///run/containerd/containerd.sock",
		"the host's containerd; empty: always a private one")
	flag.StringVar(&opts.version, "containerd", env.ContainerdDebian,
		"the private containerd: debian (the installed one) or 2.4 (that of \"make deps\")")
	flag.StringVar(&opts.api, "api", "",
		"the program berth-apiserver: run it with the agent as its node, and a Service in place of manifests")
	flag.DurationVar(&opts.timeout, "timeout", 2*time.Minute, "how long the pods may take with --once")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP,
		syscall.SIGPIPE)
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
	if err := buildImages(ctx); err != nil {
		return err
	}
	rt, err := openRuntime(ctx, opts)
	if err != nil {
		return err
	}
	show := runSamples
	if opts.api != "" {
		show = runAPI
	}
	if err := errors.Join(show(ctx, rt, opts), rt.close()); err != nil {
		return err
	}
	fmt.Println("nothing is left")
	return nil
}

// buildImages makes the sample images that are missing, which compiles a program the first time.
func buildImages(ctx context.Context) error {
	root, err := images.Root()
	if err != nil {
		return err
	}
	fmt.Print("making the sample images …")
	began := time.Now()
	_, err = images.Build(ctx, root)
	fmt.Printf(" %s\n", time.Since(began).Round(time.Second))
	return err
}

// runSamples runs the sample pods until the user, or with once their readiness, ends it, and
// removes them.
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

// startAgent starts berth with a folder of manifests.
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
			return errors.Join(fmt.Errorf("not every pod became ready within %s\n%s", opts.timeout, env.Describe(pods)),
				err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(50 * time.Millisecond):
		}
	}
}
