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
	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	"github.com/berthd/berth/agent"
	"github.com/berthd/berth/client"
	"github.com/berthd/berth/client/api"
	"github.com/berthd/berth/configs"
)

// drainOptions are the flags of drain.
type drainOptions struct {
	agent       agentFlags
	undo, stop  bool
	status      bool
	grace       time.Duration
	graceGiven  bool
	output      output
	out, errOut io.Writer
}

func newDrain() *cobra.Command {
	var o drainOptions
	cmd := &cobra.Command{
		Use:   "drain",
		Short: "Stop all pods of this node, in order, and keep them stopped",
		Long: `Stop all pods of this node and keep them stopped until "berth drain --undo", also over restarts of the agent.

Pods of a low priority stop first, and critical pods last. Each pod runs its preStop hooks and gets its grace
period. The manifests stay where they are. A pod that ended before the drain stays ended.

A pod that the drain has stopped stays listed as Drained, with its logs, until --undo starts it anew, or its manifest
changes or goes.

You may use --undo before all pods have stopped: each pod starts again as soon as it has stopped.

With --stop the agent ends, too, when no pod is left. Nothing of berth runs on the node then, and you can remove the
package. Without an agent, --stop stops the pods that an earlier agent left. The next agent starts all pods again,
also those that had ended.`,
		Example: `  berth drain                            # before maintenance
  berth drain --undo                     # after it
  berth drain --stop --grace 10s         # before taking berth off this machine`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.out, o.errOut, o.graceGiven = cmd.OutOrStdout(), cmd.ErrOrStderr(), cmd.Flags().Changed("grace")
			return o.run(cmd.Context())
		},
	}
	cmd.Flags().BoolVar(&o.undo, "undo", false, "let pods run again")
	cmd.Flags().BoolVar(&o.stop, "stop", false, "end the agent, too, once no pod is left")
	cmd.Flags().BoolVar(&o.status, "status", false, "only say whether the node is drained")
	cmd.Flags().DurationVar(&o.grace, "grace", 0, "longest grace period of a pod (default: its own)")
	o.output.flag(cmd, "json", "yaml")
	o.agent.addTo(cmd)
	cmd.MarkFlagsMutuallyExclusive("undo", "stop", "status")
	return cmd
}

func (o *drainOptions) run(ctx context.Context) error {
	cfg, _, err := o.agent.load()
	if err != nil {
		return fmt.Errorf("looking for the agent in its config: %w", err)
	}
	c := client.New(cfg.Berth.Socket)
	defer c.Close()
	if err := o.agent.same(ctx, c, cfg); err != nil {
		return ended(ctx, err)
	}
	var d *api.Drain
	switch {
	case o.undo:
		d, err = c.Undrain(ctx)
	case o.status:
		d, err = c.Drained(ctx)
	default:
		d, err = o.drain(ctx, c)
	}
	if gone := (*client.NotRunningError)(nil); o.stop && errors.As(err, &gone) {
		return o.withoutAgent(ctx, cfg)
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
		left := strings.Join(slices.Sorted(slices.Values(d.Left)), " ")
		fmt.Fprintf(o.out, "Pods are being stopped: %s\n", cmp.Or(left, "what they leave is removed"))
	}
	return nil
}

// progress prints which pods are left if their number is another one than was printed, and returns
// it. After the last pod, the agent still removes what pods leave.
func (o *drainOptions) progress(left []string, printed int) int {
	if n := len(left); n != printed && n > 0 {
		fmt.Fprintf(o.errOut, "%d left: %s\n", n, strings.Join(slices.Sorted(slices.Values(left)), " "))
	}
	return len(left)
}

// request returns the request to the agent.
func (o *drainOptions) request() api.DrainRequest {
	req := api.DrainRequest{Hold: !o.stop}
	if o.graceGiven {
		seconds := int64(o.grace.Round(time.Second) / time.Second)
		req.GraceSeconds = &seconds
	}
	return req
}

// drainLook is the time between two requests for the progress of a drain.
const drainLook = 200 * time.Millisecond

// drain asks the agent to stop all pods and waits until none is left. That may take as long as the
// pods' grace periods.
func (o *drainOptions) drain(ctx context.Context, c *client.Client) (*api.Drain, error) {
	d, err := c.Drain(ctx, o.request())
	printed, looked, silent := -1, time.Now(), ""
	for err == nil && d.State != api.Drained {
		printed = o.progress(d.Left, printed)
		if silent == "" && time.Since(looked) >= nodeLook {
			if silent = silenceOf(ctx, c); silent != "" {
				fmt.Fprintln(o.errOut, "the drain goes on when the runtime answers again: "+silent)
			}
			looked = time.Now()
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

// endAgent ends the agent. If systemd runs the agent, systemd stops it; otherwise systemd would
// start it again.
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

// unitOf returns the systemd service of a process; empty if it has none. The cgroup of a service's
// processes has the service's name.
func unitOf(pid int) string {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		return ""
	}
	return serviceIn(string(data))
}

// serviceIn returns the service in the text of /proc/PID/cgroup, from systemd's own hierarchy
// (cgroups(7)).
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

// withoutAgent stops the pods that an earlier agent left. It runs an agent in this process that
// starts no pods.
func (o *drainOptions) withoutAgent(ctx context.Context, cfg *configs.Config) error {
	if err := needRoot("stopping pods without an agent", os.Geteuid()); err != nil {
		return err
	}
	if err := emptyNode(ctx, cfg, o.request(), logAbove(slog.LevelWarn, o.errOut)); err != nil {
		return err
	}
	fmt.Fprintln(o.out, "No agent runs, and no pod is left.")
	return nil
}

// emptyTimeout limits how long all pods are stopped without an agent. With a runtime that cannot
// stop a pod this would never end.
const emptyTimeout = 10 * time.Minute

// logAbove returns a logger for people, of what is at least as bad as a level.
func logAbove(level slog.Level, w io.Writer) *slog.Logger {
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: level}))
}

// emptyNode stops every pod of the config's root directory, and removes the pods' cgroups. No other
// process may do the same at this time.
func emptyNode(ctx context.Context, cfg *configs.Config, req api.DrainRequest, log *slog.Logger) error {
	klog.SetSlogLogger(log)
	base, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	cfg.Kubelet.MakeIPTablesUtilChains = ptr.To(false) // no pod will need them
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
		return fmt.Errorf("the container runtime does not answer at %s: without it no pod can be stopped: %w",
			cfg.Kubelet.ContainerRuntimeEndpoint, err)
	}
	return nil
}

// awaitDrained waits until no pod is left. It puts back what it receives from finished.
func awaitDrained(ctx context.Context, a *agent.Agent, finished chan error) error {
	for a.Drained().State != api.Drained {
		select {
		case <-ctx.Done():
			return fmt.Errorf("stopping the pods: %s are left: %w", strings.Join(a.Drained().Left, ", "),
				context.Cause(ctx))
		case err := <-finished:
			finished <- nil
			return errors.Join(err, errors.New("the agent ended before the pods did"))
		case <-time.After(drainLook):
		}
	}
	return nil
}
