package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/utils/ptr"

	"github.com/berthd/berth/client"
	"github.com/berthd/berth/client/api"
	"github.com/berthd/berth/internal/pods"
)

// operateOptions are the flags of restart, stop and start.
type operateOptions struct {
	conn      connection
	namespace string
	container string
	grace     int64
	force     bool
	wait      bool
	ready     readyFlags
	timeout   time.Duration
}

// graceFlags adds --grace-period and --force, as kubectl delete has them.
func (o *operateOptions) graceFlags(cmd *cobra.Command) {
	cmd.Flags().Int64Var(&o.grace, "grace-period", -1, "`SECONDS` for the containers to end (default: the pod's own)")
	cmd.Flags().BoolVar(&o.force, "force", false, "end the containers at once, without their preStop hooks")
}

// seconds returns the grace period to ask for; nil for the pod's own. The rules are those of
// "kubectl delete": only --force gives no time at all.
func (o *operateOptions) seconds() (*int64, error) {
	switch {
	case o.force && o.grace > 0:
		return nil, wrongly("--force and --grace-period greater than 0 cannot be specified together")
	case o.force:
		return new(int64), nil
	case o.grace < 0:
		return nil, nil //nolint:nilnil // nil is the pod's own grace period
	case o.grace == 0:
		o.grace = 1
	}
	return &o.grace, nil
}

func newRestart() *cobra.Command {
	o := &operateOptions{}
	cmd := &cobra.Command{
		Use:   "restart POD[/CONTAINER]...",
		Short: "Restart the containers of a pod",
		Long: `Restart the app containers and sidecars of a pod, or one container. Each runs its preStop hook, gets its grace
period, and starts again whatever the restart policy says. A container in CrashLoopBackOff starts at once.

A restart counts in RESTARTS, and for the back-off it is like the end of a container that a probe has failed. The
pod keeps its address, its volumes, and the other containers. A cluster does not notice more than that.

With --wait, the command goes on to the next pod when one is ready again. It fails if a pod fails, or is not ready
within --timeout, and at once if the node is drained.`,
		Example: `  berth restart web
  berth restart web/sidecar              # one container
  berth restart web --force              # one that does not end
  berth restart web --wait --timeout 2m  # until it is ready again`,
		Args:              somePod,
		ValidArgsFunction: completeContainerPaths(&o.conn, math.MaxInt),
		RunE: func(cmd *cobra.Command, args []string) error {
			grace, err := o.seconds()
			if err = cmp.Or(err, o.ready.check()); err != nil {
				return err
			}
			return o.each(cmd, args, func(ctx context.Context, c *client.Client, arg string) (func() error, error) {
				return nil, o.restart(ctx, c, arg, grace, cmd.OutOrStdout())
			})
		},
	}
	o.conn.flag(cmd)
	namespaceFlag(cmd, &o.namespace)
	cmd.Flags().StringVarP(&o.container, "container", "c", "", "only this container")
	_ = cmd.RegisterFlagCompletionFunc("container", completeContainers)
	o.graceFlags(cmd)
	o.ready.addTo(cmd)
	return cmd
}

// restart restarts the containers that one argument names.
func (o *operateOptions) restart(
	ctx context.Context, c *client.Client, arg string, grace *int64, w io.Writer,
) error {
	pod, container, err := findContainer(ctx, c, arg, o.namespace, o.container)
	if err != nil {
		return err
	}
	req := api.RestartRequest{GraceSeconds: grace}
	if container != "" {
		req.Containers = []string{container}
	}
	done, err := c.Restart(ctx, pod.Namespace, pod.Name, req)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "%s restarts: %s\n", pods.FullName(pod), strings.Join(done.Containers, ", "))
	if err != nil || !o.ready.wait {
		return err
	}
	return o.ready.await(ctx, restarting(c, pod, done.Containers), w)
}

func newStop() *cobra.Command {
	o := &operateOptions{}
	cmd := &cobra.Command{
		Use:   "stop POD...",
		Short: "Stop a static pod, and keep it stopped",
		Long: `Stop a static pod: its containers end within its grace period, and the pod stays listed as Stopped until
"berth start". Restarts of the agent and of the machine, and a changed manifest, leave it stopped. A manifest with the
annotation ` + pods.AnnotationStart + `: "true" starts its pod when the manifest changes.

A stop outlives the manifest: where the file is removed and put back, the pod is there again, and still stopped. Only
after 30 days without the manifest the stop is forgotten.

The pod of a cluster is refused: its API server would start it again. Delete it there, or scale its owner down.

Several pods stop at the same time.

--force is for a pod that does not end. It cuts the grace period to the 2 seconds that a kubelet gives, and skips
preStop hooks that have not run. It may also be used for a pod that is being removed, or that stops already.

A stop is recorded at once. While the container runtime does not answer, no pod can end: stop says so and fails
(exit code 1), and the pod stops when the runtime is back. With --timeout, stop waits that long for it. It also fails
if the pod has not stopped within --timeout; the pod goes on stopping.`,
		Example: `  berth stop web
  berth stop web --grace-period 5
  berth stop web --force --grace-period=0
  berth start web                        # and it runs again`,
		Args:              somePod,
		ValidArgsFunction: completePods(&o.conn, math.MaxInt),
		RunE: func(cmd *cobra.Command, args []string) error {
			grace, err := o.seconds()
			if err != nil {
				return err
			}
			if o.timeout < 0 {
				return wrongly("--timeout is %s: it must not be negative", o.timeout)
			}
			return o.each(cmd, args, func(ctx context.Context, c *client.Client, arg string) (func() error, error) {
				return o.stop(ctx, c, arg, grace, cmd)
			})
		},
	}
	o.conn.flag(cmd)
	namespaceFlag(cmd, &o.namespace)
	o.graceFlags(cmd)
	cmd.Flags().BoolVar(&o.wait, "wait", true, "wait until the pod has stopped")
	cmd.Flags().DurationVar(&o.timeout, "timeout", 0, "longest wait for a pod; 0 waits as long as the runtime answers")
	return cmd
}

// stop begins to stop one pod. What it returns waits until the pod has stopped.
func (o *operateOptions) stop(
	ctx context.Context, c *client.Client, arg string, grace *int64, cmd *cobra.Command,
) (wait func() error, err error) {
	pod, err := findPod(ctx, c, arg, o.namespace)
	if err != nil {
		return nil, err
	}
	if err := c.Stop(ctx, pod.Namespace, pod.Name, api.StopRequest{GraceSeconds: grace}); err != nil {
		return nil, err
	}
	name := pods.FullName(pod)
	say := func(word string) error {
		_, err := fmt.Fprintf(cmd.OutOrStdout(), "%s %s; \"berth start %[1]s\" starts it.\n", name, word)
		return err
	}
	if o.wait {
		wait := stopWait{
			client: c, pod: pod, name: name, timeout: o.timeout, errOut: cmd.ErrOrStderr(),
			progress: newStopProgress(cmd.ErrOrStderr(), name, ptr.Deref(grace, graceOf(pod))),
		}
		return func() error {
			if err := wait.run(ctx); err != nil {
				return err
			}
			return say("is stopped")
		}, nil
	}
	word := "stops"
	if silence := silenceOf(ctx, c); silence != "" {
		word = "stops when the runtime answers again (" + silence + ")"
	}
	return nil, say(word)
}

func newStart() *cobra.Command {
	o := &operateOptions{}
	cmd := &cobra.Command{
		Use:   "start POD...",
		Short: "Start a pod that \"berth stop\" has stopped, or that has ended",
		Long: `Start a pod that "berth stop" has stopped. Nothing else ends a stop, but a changed manifest that asks for it, and
30 days without the manifest. While the manifest is away, there is no pod to start.

A static pod that has ended by itself, or that the node has refused or evicted, runs anew, as if its manifest had been
taken away and put back: with its init containers, and with new volumes of the kind emptyDir. Its logs of the last run
go.

With --wait, the command fails if the pod fails, or is not ready within --timeout, and at once if the node is
drained.`,
		Example: `  berth start web
  berth start web --wait --timeout 1m    # until it is ready`,
		Args:              somePod,
		ValidArgsFunction: completePods(&o.conn, math.MaxInt),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.ready.check(); err != nil {
				return err
			}
			return o.each(cmd, args, func(ctx context.Context, c *client.Client, arg string) (func() error, error) {
				return nil, o.start(ctx, c, arg, cmd.OutOrStdout())
			})
		},
	}
	o.conn.flag(cmd)
	namespaceFlag(cmd, &o.namespace)
	o.ready.addTo(cmd)
	return cmd
}

// start starts one pod.
func (o *operateOptions) start(ctx context.Context, c *client.Client, arg string, w io.Writer) error {
	pod, err := findPod(ctx, c, arg, o.namespace)
	if err != nil {
		return err
	}
	was, err := c.Start(ctx, pod.Namespace, pod.Name)
	if err != nil {
		return err
	}
	word := "was not stopped"
	switch {
	case was && pods.Terminal(pod.Status.Phase):
		word = "starts anew" + startsWhen(ctx, c)
	case was || pods.Held(pod): // a pod that a drain holds, or that starts already
		word = "starts" + startsWhen(ctx, c)
	}
	if _, err := fmt.Fprintf(w, "%s %s\n", pods.FullName(pod), word); err != nil || !o.ready.wait {
		return err
	}
	return o.ready.await(ctx, &awaited{client: c, namespace: pod.Namespace, name: pod.Name}, w)
}

// each does something with each argument, and then what that has returned, if anything. An error
// does not keep it from the arguments behind.
func (o *operateOptions) each(
	cmd *cobra.Command, args []string,
	do func(ctx context.Context, c *client.Client, arg string) (then func() error, err error),
) error {
	ctx, c := cmd.Context(), o.conn.client()
	defer c.Close()
	if args = withoutKind(ctx, c, args, o.namespace); len(args) == 0 {
		return wrongCall{somePod(cmd, args)}
	}
	var errs []error
	var later []func() error
	for _, arg := range args {
		then, err := do(ctx, c, arg)
		errs = append(errs, err)
		if then != nil {
			later = append(later, then)
		}
	}
	for _, then := range later {
		errs = append(errs, then())
	}
	return ended(ctx, errors.Join(errs...))
}
