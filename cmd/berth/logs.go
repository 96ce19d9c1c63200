package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/spf13/cobra"
	v1 "k8s.io/api/core/v1"

	"github.com/berthd/berth/client"
)

// logsOptions are the flags of logs.
type logsOptions struct {
	conn                         connection
	namespace, container         string
	follow, previous, timestamps bool
	allContainers, prefix        bool
	tail, limitBytes             int64
	since                        time.Duration
	sinceTime                    string
}

func newLogs() *cobra.Command {
	o := &logsOptions{}
	cmd := &cobra.Command{
		Use:   "logs POD [CONTAINER]",
		Short: "Print what a pod's containers have written",
		Example: `  berth logs web
  berth logs -f web -c sidecar --tail 20
  berth logs -p web                          # of the container before the last restart
  berth logs web --all-containers --prefix --since 1h`,
		Args:              cobra.RangeArgs(1, 2),
		ValidArgsFunction: completePods(&o.conn),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, c := cmd.Context(), o.conn.client()
			defer c.Close()
			if len(args) == 2 {
				if o.container != "" {
					return errors.New("the container is given twice: leave out -c or the second argument")
				}
				o.container = args[1]
			}
			pod, err := findPod(ctx, c, args[0], o.namespace)
			if err != nil {
				return err
			}
			return ended(ctx, o.run(ctx, c, pod, cmd.OutOrStdout(), cmd.ErrOrStderr()))
		},
	}
	o.conn.flag(cmd)
	f := cmd.Flags()
	f.StringVarP(&o.namespace, "namespace", "n", "", "the pod's namespace")
	f.StringVarP(&o.container, "container", "c", "", "the container (default the pod's first)")
	f.BoolVarP(&o.follow, "follow", "f", false, "go on until the container ends")
	f.BoolVarP(&o.previous, "previous", "p", false, "of the instance before the last restart")
	f.BoolVar(&o.timestamps, "timestamps", false, "the time before each line")
	f.BoolVar(&o.allContainers, "all-containers", false, "of all containers of the pod")
	f.BoolVar(&o.prefix, "prefix", false, "pod and container before each line")
	f.Int64Var(&o.tail, "tail", -1, "only this many lines from the end; -1 for all")
	f.Int64Var(&o.limitBytes, "limit-bytes", 0, "at most this many bytes; 0 for any number")
	f.DurationVar(&o.since, "since", 0, "only what is newer than this, such as 5s, 2m or 3h")
	f.StringVar(&o.sinceTime, "since-time", "", "only what is newer than this time (RFC 3339)")
	cmd.MarkFlagsMutuallyExclusive("since", "since-time")
	cmd.MarkFlagsMutuallyExclusive("container", "all-containers")
	return cmd
}

// request is what the agent is asked for.
func (o *logsOptions) request() (client.LogOptions, error) {
	opts := client.LogOptions{Follow: o.follow, Previous: o.previous, Timestamps: o.timestamps}
	if o.tail >= 0 {
		opts.Tail = &o.tail
	} else if o.tail < -1 {
		return opts, fmt.Errorf("--tail %d: must be -1 (all) or more", o.tail)
	}
	if o.limitBytes > 0 {
		opts.LimitBytes = &o.limitBytes
	} else if o.limitBytes < 0 {
		return opts, fmt.Errorf("--limit-bytes %d: must be more than 0", o.limitBytes)
	}
	if o.since < 0 {
		return opts, fmt.Errorf("--since %s: must be more than 0", o.since)
	}
	if o.since > 0 {
		seconds := int64((o.since + time.Second - 1) / time.Second)
		opts.SinceSeconds = &seconds
	}
	if o.sinceTime != "" {
		at, err := time.Parse(time.RFC3339Nano, o.sinceTime)
		if err != nil {
			return opts, fmt.Errorf("--since-time %s: must be a time as in RFC 3339, such as 2006-01-02T15:04:05Z", o.sinceTime)
		}
		opts.Since = at
	}
	return opts, nil
}

func (o *logsOptions) run(ctx context.Context, c *client.Client, pod *v1.Pod, out, errOut io.Writer) error {
	opts, err := o.request()
	if err != nil {
		return err
	}
	var names []string
	if o.allContainers {
		names = inOrder(pod)
	} else {
		name, note, err := chooseContainer(pod, o.container)
		if err != nil {
			return err
		}
		if note != "" {
			fmt.Fprintln(errOut, note)
		}
		names = []string{name}
	}
	copyOne := func(name string, w io.Writer) error {
		body, err := c.Logs(ctx, pod.Namespace, pod.Name, name, opts)
		if err != nil {
			return err
		}
		defer body.Close()
		if !o.prefix && len(names) == 1 {
			_, err = io.Copy(w, body)
		} else {
			prefix := ""
			if o.prefix {
				prefix = fmt.Sprintf("[pod/%s/%s] ", pod.Name, name)
			}
			err = copyLines(w, body, prefix)
		}
		if err != nil {
			return fmt.Errorf("reading the log of %s: the berth agent ended the stream: %w", name, err)
		}
		return nil
	}
	if !o.follow || len(names) == 1 {
		var errs []error
		for _, name := range names {
			errs = append(errs, copyOne(name, out))
		}
		return errors.Join(errs...)
	}
	return together(names, &lockedWriter{w: out}, copyOne)
}

// together follows several containers at once.
func together(names []string, out io.Writer, follow func(name string, w io.Writer) error) error {
	errs := make([]error, len(names))
	var wg sync.WaitGroup
	for i, name := range names {
		wg.Go(func() { errs[i] = follow(name, out) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// inOrder returns the names of the pod's containers in the order in which they start.
func inOrder(pod *v1.Pod) []string {
	names := containersOf(pod)
	first := len(names) - len(pod.Spec.InitContainers)
	return append(append([]string(nil), names[first:]...), names[:first]...)
}

// lockedWriter lets several goroutines write whole lines.
type lockedWriter struct {
	mu sync.Mutex
	w  io.Writer
}

// Write writes p in one piece.
func (l *lockedWriter) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}

// maxLine bounds what is gathered of a line before it is written: a log may be one endless line.
const maxLine = 64 << 10

// copyLines copies line by line, each in one write with a prefix. A line that is longer than maxLine comes in pieces.
func copyLines(w io.Writer, r io.Reader, prefix string) error {
	in := bufio.NewReaderSize(r, maxLine)
	begin := true
	for {
		piece, err := in.ReadSlice('\n')
		if len(piece) > 0 {
			line := piece
			if begin {
				line = append([]byte(prefix), piece...)
			}
			begin = bytes.HasSuffix(piece, []byte("\n"))
			if _, werr := w.Write(line); werr != nil {
				return werr
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil && !errors.Is(err, bufio.ErrBufferFull):
			return err
		}
	}
}
