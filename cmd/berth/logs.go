package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	v1 "k8s.io/api/core/v1"

	"github.com/berthd/berth/client"
	"github.com/berthd/berth/client/api"
	"github.com/berthd/berth/client/show"
)

const (
	// selectorTail is how many lines of each container are shown if a selector chose the pods and
	// --tail is not given (kubectl's number).
	selectorTail = 10
	// defaultRequests is how many logs may be followed at the same time without --max-log-requests
	// (kubectl's number).
	defaultRequests = 5
)

// logsOptions are the flags of logs.
type logsOptions struct {
	conn      connection
	pods      podFlags
	container string
	request   logRequest

	allContainers, prefix, ignoreErrors bool
	maxRequests                         int
}

func newLogs() *cobra.Command {
	o := &logsOptions{}
	cmd := &cobra.Command{
		Use:   "logs (POD[/CONTAINER] | -l LABELS)",
		Short: "Print what pods' containers have written",
		Long: `Print what a pod's containers have written, as "kubectl logs" does.

With -f, the command outlives a restart of the agent: it waits up to 30 seconds, and continues where it was.

Without an agent, it reads the files of one pod's logs (podLogsDir of the config), and says so.`,
		Example: `  berth logs web
  berth logs -f web/sidecar --tail 20    # or -c sidecar
  berth logs -p web                      # what the container printed before its last restart
  berth logs web --all-containers --prefix --since 1h
  berth logs -l app=web --prefix         # of all pods with this label`,
		Args:              cobra.MaximumNArgs(2),
		ValidArgsFunction: completeContainerPaths(&o.conn, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, c := cmd.Context(), o.conn.client()
			defer c.Close()
			opts, err := o.prepare(cmd, args)
			if err != nil {
				return err
			}
			sources, err := o.sources(ctx, c, args, cmd.ErrOrStderr())
			if gone := (*client.NotRunningError)(nil); errors.As(err, &gone) {
				return o.logsWithoutAgent(ctx, gone, args, opts, cmd.OutOrStdout(), cmd.ErrOrStderr())
			}
			if err != nil {
				return err
			}
			p := &logPrinter{
				client:       c,
				opts:         opts,
				sources:      sources,
				prefix:       o.prefix,
				ignoreErrors: o.ignoreErrors,
				out:          cmd.OutOrStdout(),
				errOut:       cmd.ErrOrStderr(),
			}
			return ended(ctx, p.print(ctx, o.maxRequests))
		},
	}
	o.flags(cmd)
	return cmd
}

func (o *logsOptions) flags(cmd *cobra.Command) {
	o.conn.flag(cmd)
	namespaceFlag(cmd, &o.pods.namespace)
	o.pods.selectorFlag(cmd)
	o.request.flags(cmd)
	f := cmd.Flags()
	f.StringVarP(&o.container, "container", "c", "", "the container (default the pod's first)")
	f.BoolVar(&o.allContainers, "all-containers", false, "of all containers of the pod")
	f.BoolVar(&o.prefix, "prefix", false, "pod and container before each line")
	f.BoolVar(&o.ignoreErrors, "ignore-errors", false,
		"continue with the other containers if the log of one cannot be read")
	f.IntVar(&o.maxRequests, "max-log-requests", defaultRequests, "at most this many logs at once with -f")
	cmd.MarkFlagsMutuallyExclusive("container", "all-containers")
	_ = cmd.RegisterFlagCompletionFunc("container", completeContainers)
}

// prepare checks arguments and flags against each other, and returns the options for the agent.
func (o *logsOptions) prepare(cmd *cobra.Command, args []string) (client.LogOptions, error) {
	switch {
	case len(args) == 0 && o.pods.selector == "":
		return client.LogOptions{}, wrongly("a POD or a selector (-l) is required")
	case len(args) > 0 && o.pods.selector != "":
		return client.LogOptions{}, wrongly("only a selector (-l) or a POD name is allowed")
	case len(args) == 2 && (o.container != "" || o.allContainers):
		return client.LogOptions{}, wrongly(
			"the container is given twice: leave out the second argument, -c or --all-containers")
	case len(args) == 2:
		o.container = args[1]
	}
	if o.pods.selector != "" && !cmd.Flags().Changed("tail") {
		o.request.tail = selectorTail
	}
	return o.request.options()
}

// sources returns the chosen containers, in the order in which their logs are shown.
func (o *logsOptions) sources(
	ctx context.Context, c *client.Client, args []string, errOut io.Writer,
) ([]logSource, error) {
	var pods []v1.Pod
	if len(args) > 0 {
		pod, container, err := findContainer(ctx, c, args[0], o.pods.namespace, o.container)
		if _, number := strconv.Atoi(o.pods.namespace); err != nil && number == nil {
			return nil, fmt.Errorf("%w: -n is the namespace, and --tail %s the number of lines", err, o.pods.namespace)
		}
		if err != nil {
			return nil, err
		}
		if container != "" && o.allContainers {
			return nil, wrongly("%s names a container, and --all-containers all of them: leave one out", args[0])
		}
		o.container, pods = container, []v1.Pod{*pod}
	} else {
		chosen, err := o.pods.choose(ctx, c, nil)
		if err != nil {
			return nil, err
		}
		all, err := c.Pods(ctx)
		if err != nil {
			return nil, err
		}
		if pods = chosen.pods(all); len(pods) == 0 {
			fmt.Fprintln(errOut, "No pods found.")
		}
	}
	var sources []logSource
	for i := range pods {
		names := inOrder(&pods[i])
		if !o.allContainers {
			name, note, err := chooseContainer(&pods[i], o.container)
			if err != nil {
				return nil, err
			}
			if note != "" {
				fmt.Fprintln(errOut, note)
			}
			names = []string{name}
		}
		for _, name := range names {
			sources = append(sources, logSource{&pods[i], name})
		}
	}
	return sources, nil
}

// inOrder returns the names of the pod's containers in the order in which they start.
func inOrder(pod *v1.Pod) []string {
	names := api.ContainerNames(pod)
	first := len(names) - len(pod.Spec.InitContainers)
	return append(append([]string(nil), names[first:]...), names[:first]...)
}

// logRequest are the flags that select a part of a log.
type logRequest struct {
	follow, previous, timestamps bool
	tail, limitBytes             int64
	since                        time.Duration
	sinceTime                    string
}

func (r *logRequest) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.BoolVarP(&r.follow, "follow", "f", false, "go on until the container has ended for good, over its restarts")
	f.BoolVarP(&r.previous, "previous", "p", false, "of the instance before the last restart")
	f.BoolVar(&r.timestamps, "timestamps", false, "the time before each line")
	f.Int64Var(&r.tail, "tail", -1, "only this many lines from the end; -1 for all (with -l: default 10)")
	f.Int64Var(&r.limitBytes, "limit-bytes", 0, "at most this many bytes; 0 for any number")
	f.DurationVar(&r.since, "since", 0, "only what is newer than this, such as 5s, 2m or 3h")
	f.StringVar(&r.sinceTime, "since-time", "", "only what is newer than this time (RFC 3339)")
	cmd.MarkFlagsMutuallyExclusive("since", "since-time")
}

// options returns the options for the agent.
func (r *logRequest) options() (client.LogOptions, error) {
	opts := client.LogOptions{Follow: r.follow, Previous: r.previous, Timestamps: r.timestamps}
	if r.tail >= 0 {
		opts.Tail = &r.tail
	} else if r.tail < -1 {
		return opts, wrongly("--tail %d: must be -1 (all) or more", r.tail)
	}
	if r.limitBytes > 0 {
		opts.LimitBytes = &r.limitBytes
	} else if r.limitBytes < 0 {
		return opts, wrongly("--limit-bytes %d: must be more than 0", r.limitBytes)
	}
	if r.since < 0 {
		return opts, wrongly("--since %s: must be more than 0", r.since)
	}
	if r.since > 0 {
		seconds := int64((r.since + time.Second - 1) / time.Second)
		opts.SinceSeconds = &seconds
	}
	if r.sinceTime != "" {
		at, err := time.Parse(time.RFC3339Nano, r.sinceTime)
		if err != nil {
			return opts, wrongly("--since-time %s: must be a time as in RFC 3339, such as 2006-01-02T15:04:05Z",
				r.sinceTime)
		}
		opts.Since = at
	}
	return opts, nil
}

// logSource is a container whose log is wanted.
type logSource struct {
	pod       *v1.Pod
	container string
}

// logPrinter prints logs: one after the other, or all at the same time if they are followed.
type logPrinter struct {
	client       *client.Client
	opts         client.LogOptions
	sources      []logSource
	prefix       bool
	ignoreErrors bool
	out, errOut  io.Writer
}

func (p *logPrinter) print(ctx context.Context, most int) error {
	if !p.opts.Follow || len(p.sources) == 1 {
		var errs []error
		for _, s := range p.sources {
			errs = append(errs, p.one(ctx, s))
		}
		return errors.Join(errs...)
	}
	if len(p.sources) > most {
		return fmt.Errorf("you are attempting to follow %d log streams, but maximum allowed concurrency is %d, use "+
			"--max-log-requests to increase the limit", len(p.sources), most)
	}
	p.out, p.errOut = &lockedWriter{w: p.out}, &lockedWriter{w: p.errOut}
	errs := make([]error, len(p.sources))
	var wg sync.WaitGroup
	for i, s := range p.sources {
		wg.Go(func() { errs[i] = p.one(ctx, s) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// one prints the log of one container.
func (p *logPrinter) one(ctx context.Context, s logSource) error {
	w, finish := p.writer(s)
	defer finish()
	var err error
	if p.opts.Follow {
		err = p.client.FollowLog(ctx, s.pod, s.container, p.opts, w, func(text string) {
			fmt.Fprintf(p.errOut, "log of %s: %s\n", p.source(s), text)
		})
	} else {
		err = p.read(ctx, s, w)
	}
	if bad := (*client.StatusError)(nil); p.opts.Previous && errors.As(err, &bad) && bad.Code == http.StatusBadRequest {
		err = fmt.Errorf("%w: %s", err, withoutPrevious(s.pod))
	}
	if err != nil && p.ignoreErrors && ctx.Err() == nil {
		fmt.Fprintln(p.errOut, "error:", show.CleanLines(err.Error()))
		return nil
	}
	return err
}

// withoutPrevious says what to do about a container that has no log of an earlier instance.
func withoutPrevious(pod *v1.Pod) string {
	var earlier []string
	for _, s := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		if s.LastTerminationState.Terminated != nil {
			earlier = append(earlier, s.Name)
		}
	}
	if len(earlier) == 0 {
		return "no container of the pod has restarted; leave out -p"
	}
	return "it has not restarted; leave out -p, or name one that has: " + strings.Join(earlier, ", ")
}

func (p *logPrinter) read(ctx context.Context, s logSource, w io.Writer) error {
	body, err := p.client.Logs(ctx, s.pod.Namespace, s.pod.Name, s.container, p.opts)
	if err != nil {
		return err
	}
	defer body.Close()
	if _, err := io.Copy(w, body); err != nil {
		return fmt.Errorf("reading the log of %s: the berth agent ended the stream: %w", s.container, err)
	}
	return nil
}

// source names a container as kubectl does, pod/NAME/CONTAINER. The name has the namespace if logs
// are shown of pods with the same name in several namespaces.
func (p *logPrinter) source(s logSource) string {
	if slices.ContainsFunc(p.sources, func(o logSource) bool {
		return o.pod.Name == s.pod.Name && o.pod.Namespace != s.pod.Namespace
	}) {
		return fmt.Sprintf("pod/%s/%s/%s", s.pod.Namespace, s.pod.Name, s.container)
	}
	return fmt.Sprintf("pod/%s/%s", s.pod.Name, s.container)
}

// writer returns the writer for one container's log; finish ends its last line.
func (p *logPrinter) writer(s logSource) (w io.Writer, finish func()) {
	if !p.prefix && len(p.sources) == 1 {
		return p.out, func() {}
	}
	l := &lineWriter{w: p.out}
	if p.prefix {
		l.prefix = "[" + p.source(s) + "] "
	}
	return l, l.flush
}

// lockedWriter lets several goroutines write whole lines.
type lockedWriter struct {
	mu sync.Mutex
	w  io.Writer
	// failed is called when a write fails; it may be nil. first is the first error of a write.
	failed func()
	first  error
}

// err returns the first error of a write; nil if there was none.
func (l *lockedWriter) err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.first
}

// setFailed sets what is called when a write fails.
func (l *lockedWriter) setFailed(failed func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.failed = failed
}

// Write writes p in one piece.
func (l *lockedWriter) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n, err := l.w.Write(p)
	if err != nil {
		l.first = cmp.Or(l.first, err)
		if l.failed != nil {
			l.failed()
		}
	}
	return n, err
}

// maxLine is how many bytes of a line are collected before it is written. A log may be one endless
// line.
const maxLine = 64 << 10
