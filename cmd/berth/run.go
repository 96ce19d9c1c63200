package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"os/signal"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	"github.com/berthd/berth/agent"
	"github.com/berthd/berth/agent/server"
	"github.com/berthd/berth/agent/source"
	"github.com/berthd/berth/client/api"
	"github.com/berthd/berth/client/show"
	"github.com/berthd/berth/configs"
)

func newRun() *cobra.Command {
	var once, clean bool
	cmd := &cobra.Command{
		Use:   "run POD.yaml",
		Short: "Run one manifest on this node in the foreground",
		Long: `Run one manifest, with the ConfigMaps and Secrets in its file, on this node in the foreground. No
agent is needed: the pod gets one of its own, in this process, beside whatever else runs on the node. The
output of the containers goes to standard output, and the events of the pod go to standard error.

Ctrl-C stops the pod within its grace period and leaves nothing behind; a second Ctrl-C kills it. The end of the
terminal (SIGHUP), SIGTERM and a closed pipe stop it, too. If this command itself is killed, its pod runs on: "berth
doctor" finds it, and "berth run --clean" stops it and removes all that is left.

With --once the command ends with the pod, and restartPolicy Always counts as Never. The exit code is that of the
first container that failed, 0 if none did; or 125 if berth could not start the pod, 126 if a container's command
cannot be executed, and 127 if it is not there.

"-" is standard input.`,
		Example: `  berth run pod.yaml                     # until Ctrl-C
  berth run job.yaml --once && echo done
  berth run - --once <job.yaml           # what another program writes
  berth run --clean                      # remove what killed runs have left`,
		Args: runArgs(&clean),
		RunE: func(cmd *cobra.Command, args []string) error {
			if clean {
				return runClean(cmd)
			}
			r := &runner{
				out:    &lockedWriter{w: cmd.OutOrStdout()},
				errOut: &lockedWriter{w: cmd.ErrOrStderr()},
				once:   once,
			}
			code, err := r.run(cmd.Context(), args[0], cmd.InOrStdin(), cmd.Flags())
			if err != nil {
				fmt.Fprintln(cmd.ErrOrStderr(), "Error:", err)
				code = max(code, 1)
			}
			if code != 0 {
				return &exitError{code: code}
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&once, "once", false, "end with the pod, with its exit code")
	cmd.Flags().BoolVar(&clean, "clean", false, "remove what killed runs have left (--root-dir: of that one)")
	cmd.MarkFlagsMutuallyExclusive("once", "clean")
	configs.AddFlags(cmd.Flags())
	shown := map[string]bool{
		"once":                       true,
		"clean":                      true,
		"config":                     true,
		"config-dir":                 true,
		"root-dir":                   true,
		"container-runtime-endpoint": true,
		"hostname-override":          true,
		"help":                       true,
	}
	cmd.Flags().VisitAll(func(f *pflag.Flag) { f.Hidden = !shown[f.Name] })
	return cmd
}

// runArgs requires one manifest, but none for a cleaning.
func runArgs(clean *bool) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if *clean {
			return noArgs(cmd, args)
		}
		return exactly(1, "one FILE, or - for standard input")(cmd, args)
	}
}

// runClean removes what killed runs have left.
func runClean(cmd *cobra.Command) error {
	if err := needRoot("berth run", os.Geteuid()); err != nil {
		return err
	}
	only := ""
	if root := cmd.Flags().Lookup("root-dir"); root.Changed {
		only = root.Value.String()
	}
	return cleanRuns(cmd.Context(), only, cmd.OutOrStdout(), cmd.ErrOrStderr())
}

// runner runs one pod with an agent of its own.
type runner struct {
	out, errOut *lockedWriter
	once        bool

	cfg   *configs.Config
	agent *agent.Agent
	home  *runHome
	// tails are the readers of logs, which continue while the pod is stopped.
	tails *tailers
}

// run runs the manifest and returns the exit code, and an error to print.
func (r *runner) run(ctx context.Context, file string, stdin io.Reader, flags *pflag.FlagSet) (code int, err error) {
	if err := needRoot("berth run", os.Geteuid()); err != nil {
		return cannotStart, err
	}
	cfg, warnings, err := configs.Load(configs.Options{Flags: flags})
	for _, w := range warnings {
		fmt.Fprintln(r.errOut, "config:", w.String())
	}
	if err != nil {
		return cannotStart, err
	}
	r.cfg = cfg
	cfg.Kubelet.MakeIPTablesUtilChains = ptr.To(false) // the chains are a node's, and would stay
	pod, manifest, err := r.read(file, stdin)
	if err != nil {
		return cannotStart, err
	}
	if r.home, err = makeHome(cfg, pod, flags.Changed("root-dir")); err != nil {
		return cannotStart, err
	}
	return r.live(ctx, manifest)
}

// read checks the manifest as the agent will. It returns the name of its pod and the manifest for
// the agent.
func (r *runner) read(file string, stdin io.Reader) (pod podName, manifest []byte, err error) {
	node, err := configs.NodeName(r.cfg)
	if err != nil {
		return pod, nil, err
	}
	data, err := source.ReadManifest(file, stdin)
	if errors.Is(err, fs.ErrNotExist) && source.NameHint(file) != "" {
		err = fmt.Errorf("%w: berth run takes the FILE of a pod's manifest, and no image", err)
	}
	if err != nil {
		return pod, nil, err
	}
	found := 0
	for _, v := range source.ValidateData(node, file, data) {
		if !v.Accepted {
			show.Validated(r.errOut, []api.Manifest{server.ManifestOf(v)})
			err = fmt.Errorf("%s is not a valid manifest", file)
		}
		if v.Kind == "Pod" {
			found++
			pod = podName{v.Namespace, v.Name}
		}
	}
	if err != nil {
		return pod, nil, err
	}
	if found != 1 {
		return pod, nil, fmt.Errorf(
			"%s has %d pods: berth run runs one; put several into the manifest directory of an agent", file, found)
	}
	if !r.once {
		return pod, data, nil
	}
	once, changed, err := runOnce(data)
	if err != nil {
		return pod, nil, fmt.Errorf("reading the manifest: %w", err)
	}
	if !changed {
		return pod, data, nil
	}
	fmt.Fprintln(r.errOut, "restartPolicy Always counts as Never with --once")
	return pod, once, nil
}

// loggers returns the loggers of the agent and of libraries. They log only errors, unless -v asks
// for more: events show what a user has to know.
func (r *runner) loggers() (own, libraries *slog.Logger) {
	if r.cfg.Kubelet.Logging.Verbosity > 0 {
		log := newLog(r.cfg, nil)
		return log.Logger(), log.Libraries()
	}
	own = runLog(r.errOut)
	return own, own
}

// runLog returns the logger of a run and of its cleaning. It leaves out warnings: they are about
// the node and the pods of other agents.
func runLog(w io.Writer) *slog.Logger { return logAbove(slog.LevelError, w) }

// live runs the agent from start to end.
func (r *runner) live(ctx context.Context, manifest []byte) (code int, err error) {
	ctx, release := r.outlive(ctx)
	defer release()
	// Ctrl-C stops the pod, not the agent
	base, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	log, libraries := r.loggers()
	klog.SetSlogLogger(libraries)
	a, closeAll, err := agent.Assemble(base, r.cfg, version, log)
	if err != nil {
		return cannotStart, err
	}
	defer closeAll()
	r.agent = a
	if err := r.home.put(manifest); err != nil {
		return cannotStart, err
	}
	ended := make(chan error, 1)
	go func() { ended <- a.Run(base) }()

	ready, err := r.ready(ctx, ended)
	switch {
	case ready:
		code, err = r.watch(ctx, ended)
	case because(ctx, err):
		code, err = r.interruptedCode(), nil
	default:
		code = cannotStart
	}
	// also if nobody waits for the pod any more, because it may have started
	err = errors.Join(err, r.stop(ctx, ended))
	if r.tails != nil {
		r.tails.wait(logsTimeout)
	}
	cancel()
	select {
	case runErr := <-ended:
		if !because(base, runErr) {
			err = errors.Join(err, runErr)
		}
	case <-time.After(endTimeout):
		return max(code, 1), errors.Join(err, errors.New("the agent does not end"))
	}
	if dismantleErr := a.Dismantle(context.WithoutCancel(ctx)); dismantleErr != nil {
		err = errors.Join(err, dismantleErr)
	}
	err = errors.Join(err, r.home.remove(context.WithoutCancel(ctx)))
	return code, err
}

// outlive returns a context that ends as ctx does, and when the terminal is closed (SIGHUP) or
// nobody reads the output any more. Until release is called, no signal ends the process while its
// pod runs. A HUP that the caller ignores (nohup) stays ignored.
func (r *runner) outlive(ctx context.Context) (_ context.Context, release func()) {
	ctx, cancel := context.WithCancel(ctx)
	r.out.setFailed(cancel)
	r.errOut.setFailed(cancel)
	kept := make(chan os.Signal, 1) // nobody reads it: the context of the process has the same signals
	signal.Notify(kept, unix.SIGINT, unix.SIGTERM, unix.SIGPIPE)
	if !signal.Ignored(unix.SIGHUP) {
		hung, stop := signal.NotifyContext(ctx, unix.SIGHUP)
		return hung, func() { stop(); signal.Stop(kept); cancel() }
	}
	return ctx, func() { signal.Stop(kept); cancel() }
}

// interruptedCode is the exit code of a run that Ctrl-C ended. Without --once this is the normal
// end.
func (r *runner) interruptedCode() int {
	if r.once {
		return interrupted
	}
	return 0
}

const (
	// readyTimeout is how long the runtime may take to answer.
	readyTimeout = 30 * time.Second
	// endTimeout is how long the agent may take to end after the pod was removed.
	endTimeout = 30 * time.Second
	// stopMargin is how much longer than the pod's grace period a stop may take.
	stopMargin = 2 * time.Minute
)

// ready waits until the agent is ready and its runtime answers.
func (r *runner) ready(ctx context.Context, ended chan error) (bool, error) {
	waiting, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	answer := make(chan error, 1)
	go func() { answer <- r.agent.AwaitRuntime(waiting) }()
	select {
	case err := <-ended:
		ended <- nil
		cancel()
		if waited := <-answer; err == nil {
			err = waited
		}
		return false, err
	case err := <-answer:
		if err != nil && ctx.Err() == nil {
			err = fmt.Errorf(
				"waiting for the container runtime at %s (is it running? see systemctl status containerd): %w",
				r.cfg.Kubelet.ContainerRuntimeEndpoint, err)
		}
		return err == nil, err
	}
}

// stop ends the pod and waits until it is removed completely. Another Ctrl-C at this time kills the
// pod.
func (r *runner) stop(ctx context.Context, ended chan error) error {
	again := make(chan os.Signal, 1)
	signal.Notify(again, unix.SIGINT, unix.SIGTERM)
	defer signal.Stop(again)
	if ctx.Err() != nil && r.pod() != nil {
		fmt.Fprintln(r.errOut, "Stopping the pod; Ctrl-C again kills it.")
	}
	limit := stopMargin
	for _, pod := range r.agent.Pods() {
		if s := pod.Spec.TerminationGracePeriodSeconds; s != nil {
			limit = max(limit, time.Duration(*s)*time.Second+stopMargin)
		}
	}
	if err := r.home.empty(); err != nil {
		return err
	}
	changed, stopWatch := r.agent.WatchPods()
	defer stopWatch()
	late := time.NewTimer(limit)
	defer late.Stop()
	look := time.NewTicker(100 * time.Millisecond)
	defer look.Stop()
	for pod := r.pod(); pod != nil; pod = r.pod() {
		if r.tails != nil {
			r.tails.follow(pod)
		}
		select {
		case <-changed:
		case <-look.C:
		case <-again:
			r.agent.KillPods()
		case err := <-ended:
			ended <- nil
			return errors.Join(err, errors.New("the agent ended before the pod did"))
		case <-late.C:
			return fmt.Errorf("the pod did not end within %s; \"berth run --clean\" tries again; its directory is %s",
				limit, r.home.root)
		}
	}
	return nil
}
