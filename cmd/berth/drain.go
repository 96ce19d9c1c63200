package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"

	"github.com/berthd/berth/agent"
	"github.com/berthd/berth/client"
	"github.com/berthd/berth/client/api"
	"github.com/berthd/berth/configs"
)

// drainOptions are the flags of drain.
type drainOptions struct {
	conn        connection
	undo, stop  bool
	status      bool
	grace       time.Duration
	graceGiven  bool
	output      output
	out, errOut io.Writer
	load        func() (*configs.Config, []configs.Warning, error)
}

func newDrain() *cobra.Command {
	var o drainOptions
	cmd := &cobra.Command{
		Use:   "drain",
		Short: "Stop all pods of this node, in order, and keep them stopped",
		Long: `Stop all pods of this node and keep them stopped, over restarts of the agent, too, until "berth drain --undo".

Pods of a low priority are stopped first, critical ones last; each runs its preStop hooks and gets its grace period. Their manifests stay where they are.
Pods that have ended before stay ended. --undo need not wait until all pods are stopped: those that are come back as soon as they are gone.

With --stop the agent ends, too, once no pod is left: nothing of berth runs on the node then, and its packages can be removed. Without an agent it stops
what an earlier one left. The next agent starts the pods again, also those that have ended.`,
		Example: `  berth drain                            # before maintenance
  berth drain --undo                     # after it
  berth drain --stop --grace 10s         # before taking berth off this machine`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.out, o.errOut, o.graceGiven = cmd.OutOrStdout(), cmd.ErrOrStderr(), cmd.Flags().Changed("grace")
			return o.run(cmd.Context())
		},
	}
	o.conn.flag(cmd)
	cmd.Flags().BoolVar(&o.undo, "undo", false, "let pods run again")
	cmd.Flags().BoolVar(&o.stop, "stop", false, "end the agent, too, once no pod is left")
	cmd.Flags().BoolVar(&o.status, "status", false, "only say whether the node is drained")
	cmd.Flags().DurationVar(&o.grace, "grace", 0, "longest grace period of a pod (default: its own)")
	o.output.flag(cmd, "json", "yaml")
	o.load = configFlags(cmd)
	cmd.MarkFlagsMutuallyExclusive("undo", "stop", "status")
	return cmd
}

// configFlags adds the flags by which a verb finds the agent's config, and returns what reads it.
func configFlags(cmd *cobra.Command) (load func() (*configs.Config, []configs.Warning, error)) {
	all := pflag.NewFlagSet("config", pflag.ContinueOnError)
	configs.AddFlags(all)
	for _, name := range []string{"config", "config-dir", "root-dir", "container-runtime-endpoint"} {
		cmd.Flags().AddFlag(all.Lookup(name))
	}
	return func() (*configs.Config, []configs.Warning, error) {
		return configs.Load(configs.Options{Flags: cmd.Flags()}) // this set knows which were given; all does not
	}
}

func (o *drainOptions) run(ctx context.Context) error {
	if o.conn.socket = cmp.Or(o.conn.socket, os.Getenv(socketEnv)); o.conn.socket == "" {
		cfg, _, err := o.load()
		if err != nil {
			return fmt.Errorf("looking for the agent's socket in its config: %w: give --socket", err)
		}
		o.conn.socket = cfg.Berth.Socket
	}
	c := o.conn.client()
	defer c.Close()
	var d *api.Drain
	var err error
	switch {
	case o.undo:
		d, err = c.Undrain(ctx)
	case o.status:
		d, err = c.Drained(ctx)
	default:
		d, err = o.drain(ctx, c)
	}
	if gone := (*client.NotRunningError)(nil); o.stop && errors.As(err, &gone) {
		return o.withoutAgent(ctx)
	}
	if err != nil {
		return ended(ctx, err)
	}
	if o.stop {
		return o.endAgent(ctx, c)
	}
	return o.say(d)
}

func (o *drainOptions) say(d *api.Drain) error {
	if o.output != "" {
		return o.output.write(o.out, d)
	}
	switch d.State {
	case api.Open:
		fmt.Fprintln(o.out, "Pods run on this node.")
	case api.Drained:
		fmt.Fprintln(o.out, "This node is drained. \"berth drain --undo\" lets its pods run again.")
	default:
		fmt.Fprintf(o.out, "Pods are being stopped: %s\n", strings.Join(slices.Sorted(slices.Values(d.Left)), " "))
	}
	return nil
}

// request is what the agent is asked for.
func (o *drainOptions) request() api.DrainRequest {
	req := api.DrainRequest{Hold: !o.stop}
	if o.graceGiven {
		seconds := int64(o.grace.Round(time.Second) / time.Second)
		req.GraceSeconds = &seconds
	}
	return req
}

// drainLook is between two looks how far a drain is.
const drainLook = 200 * time.Millisecond

// drain has the agent stop all pods and waits until none is left, which may take as long as their grace periods.
func (o *drainOptions) drain(ctx context.Context, c *client.Client) (*api.Drain, error) {
	d, err := c.Drain(ctx, o.request())
	told := -1
	for err == nil && d.State != api.Drained {
		if n := len(d.Left); n != told {
			fmt.Fprintf(o.errOut, "%d left: %s\n", n, strings.Join(slices.Sorted(slices.Values(d.Left)), " "))
			told = n
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("the drain goes on without this command: %w", context.Cause(ctx))
		case <-time.After(drainLook):
		}
		d, err = c.Drained(ctx)
	}
	return d, err
}

// endAgent ends the agent: through systemd where that runs it, which would start it again otherwise.
func (o *drainOptions) endAgent(ctx context.Context, c *client.Client) error {
	pid, err := c.AgentPID(ctx)
	if err != nil {
		return err
	}
	if unit := unitOf(pid); unit != "" {
		if out, err := exec.CommandContext(ctx, "systemctl", "stop", unit).CombinedOutput(); err != nil {
			return fmt.Errorf("no pod is left, but the agent runs on: systemctl stop %s: %w: %s", unit, err, out)
		}
		fmt.Fprintf(o.out, "No pod is left, and %s is stopped.\n", unit)
		return nil
	}
	if err := unix.Kill(pid, unix.SIGTERM); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("no pod is left, but the agent runs on: ending process %d: %w", pid, err)
	}
	fmt.Fprintln(o.out, "No pod is left, and the agent ends.")
	return nil
}

// unitOf returns the systemd service that a process is of, empty where it is of none. A service's processes are in a cgroup of its name.
func unitOf(pid int) string {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		return ""
	}
	return serviceIn(string(data))
}

// serviceIn returns the service in a /proc/PID/cgroup, of systemd's own hierarchy (cgroups(7)).
func serviceIn(text string) string {
	for line := range strings.Lines(text) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) < 3 || parts[1] != "" && parts[1] != "name=systemd" {
			continue
		}
		for _, name := range slices.Backward(strings.Split(parts[2], "/")) {
			if strings.HasSuffix(name, ".service") && !strings.HasPrefix(name, "user@") {
				return name
			}
		}
	}
	return ""
}

// withoutAgent stops what an earlier agent left, with an agent in this process that starts nothing.
func (o *drainOptions) withoutAgent(ctx context.Context) error {
	if err := needRoot("stopping pods without an agent", os.Geteuid()); err != nil {
		return err
	}
	cfg, _, err := o.load()
	if err != nil {
		return err
	}
	if err := emptyNode(ctx, cfg, o.request(), o.errOut); err != nil {
		return err
	}
	fmt.Fprintln(o.out, "No agent runs, and no pod is left.")
	return nil
}

// emptyTimeout bounds the stopping of all pods without an agent: with a runtime that cannot take a pod down it would go on for ever.
const emptyTimeout = 10 * time.Minute

// emptyNode stops every pod of the config's root directory, and removes the pods' cgroups. Nothing must run that does the same.
func emptyNode(ctx context.Context, cfg *configs.Config, req api.DrainRequest, errOut io.Writer) error {
	log := slog.New(slog.NewTextHandler(errOut, &slog.HandlerOptions{Level: slog.LevelWarn}))
	klog.SetSlogLogger(log)
	base, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	a, closeAll, err := agent.Assemble(base, cfg, version, log)
	if err != nil {
		return err
	}
	defer closeAll()
	if err := awaitAnswer(ctx, a, cfg); err != nil {
		return err
	}
	if err := a.Drain(req); err != nil {
		return err
	}
	finished := make(chan error, 1)
	go func() { finished <- a.Run(base) }()
	waiting, over := context.WithTimeout(ctx, emptyTimeout)
	err = awaitDrained(waiting, a, finished)
	over()
	cancel()
	if runErr := <-finished; runErr != nil && err == nil {
		err = runErr
	}
	if err != nil {
		return err
	}
	return a.Dismantle(context.WithoutCancel(ctx))
}

// awaitAnswer waits until the runtime answers.
func awaitAnswer(ctx context.Context, a *agent.Agent, cfg *configs.Config) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	if err := a.AwaitRuntime(ctx); err != nil {
		return fmt.Errorf("the container runtime does not answer at %s: without it no pod can be stopped: %w", cfg.Kubelet.ContainerRuntimeEndpoint, err)
	}
	return nil
}

// awaitDrained waits until no pod is left. What it takes from finished it puts back.
func awaitDrained(ctx context.Context, a *agent.Agent, finished chan error) error {
	for a.Drained().State != api.Drained {
		select {
		case <-ctx.Done():
			return fmt.Errorf("stopping the pods: %s are left: %w", strings.Join(a.Drained().Left, ", "), context.Cause(ctx))
		case err := <-finished:
			finished <- nil
			return errors.Join(err, errors.New("the agent ended before the pods did"))
		case <-time.After(drainLook):
		}
	}
	return nil
}
