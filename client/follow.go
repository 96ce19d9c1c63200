package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
)

const (
	// reconnectFor is how long the follower waits for an agent that went away.
	reconnectFor = 30 * time.Second
	// reconnectFirst is the first pause between two attempts. It doubles up to reconnectMost.
	reconnectFirst = 50 * time.Millisecond
	reconnectMost  = time.Second
)

// FollowLog writes a container's log to w, also over restarts of the container. It returns when the
// container has ended for good, ctx has ended, or LimitBytes are written. It always follows,
// whatever opts.Follow is. Each write has one line, or a part of a very long line.
//
// If the agent goes away, FollowLog waits for it for a while, and then continues the log without
// losing or repeating a line. report, if not nil, is called with a message about that, and about
// lines that may be missing because the container restarted more than once at that time. pod is the
// pod as the caller knows it.
func (c *Client) FollowLog(
	ctx context.Context, pod *v1.Pod, container string, opts LogOptions, w io.Writer, report func(string),
) error {
	f := &follower{
		client:    c,
		pod:       pod,
		container: container,
		opts:      opts,
		patience:  reconnectFor,
		began:     time.Now(),
		report:    report,
	}
	f.out = newResumer(w, opts.Timestamps, opts.LimitBytes)
	// The follower needs the times of the lines, and it counts bytes without times that the caller
	// did not ask for.
	f.opts.Follow, f.opts.Timestamps, f.opts.LimitBytes = true, true, nil
	if f.report == nil {
		f.report = func(string) {}
	}
	return f.run(ctx)
}

// follower follows one container's log over restarts of the agent.
type follower struct {
	client    *Client
	pod       *v1.Pod
	container string
	opts      LogOptions
	patience  time.Duration
	began     time.Time
	out       *resumer
	report    func(string)
}

// errReplaced is the error of a log whose pod was replaced by another one of the same name.
var errReplaced = errors.New(
	"the pod was replaced while the berth agent was away: the end of its log is not to be had here")

func (f *follower) run(ctx context.Context) error {
	body, err := f.open(ctx, f.opts)
	if err != nil {
		return err
	}
	var rest []LogOptions // what is to be read after body
	for {
		ended, err := f.out.copy(body)
		_ = body.Close()
		switch {
		case ended && (err != nil || len(rest) == 0 || f.out.left == 0):
			return err
		case ended:
			if body, err = f.open(ctx, rest[0]); err != nil {
				return err
			}
			rest = rest[1:]
		case !brokenOff(err) || ctx.Err() != nil:
			return err
		default:
			f.report(fmt.Sprintf("the berth agent ended the stream; reconnecting for up to %s", f.patience))
			f.opts = f.opts.from(f.out.since(), f.began)
			if body, rest, err = f.reconnect(ctx); err != nil {
				return err
			}
			f.report("reconnected")
		}
	}
}

func (f *follower) open(ctx context.Context, opts LogOptions) (io.ReadCloser, error) {
	return f.client.Logs(ctx, f.pod.Namespace, f.pod.Name, f.container, opts)
}

// brokenOff reports whether a read error is an error of the connection.
func brokenOff(err error) bool {
	return errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, unix.ECONNRESET) || errors.Is(err, unix.EPIPE)
}

// reconnect opens the log again where it ended; rest is what is to be read after it.
func (f *follower) reconnect(ctx context.Context) (body io.ReadCloser, rest []LogOptions, err error) {
	waiting, cancel := context.WithTimeout(ctx, f.patience)
	defer cancel()
	var last error
	for pause := reconnectFirst; ; pause = min(2*pause, reconnectMost) {
		parts, err := f.find(waiting)
		if err == nil {
			// The answer may take longer than the waiting, so it has the caller's context.
			if body, err = f.open(ctx, parts[0]); err == nil {
				return body, parts[1:], nil
			}
		}
		if errors.Is(err, errReplaced) {
			return nil, nil, err
		}
		if last == nil || waiting.Err() == nil {
			last = err
		}
		select {
		case <-time.After(pause):
		case <-waiting.Done():
			if ctx.Err() != nil {
				return nil, nil, context.Cause(ctx)
			}
			return nil, nil, fmt.Errorf("the berth agent ended the stream and did not give it back within %s: %w",
				f.patience, last)
		}
	}
}

// find asks the agent for the container and returns the requests for the rest of its log. There are
// one or two requests, because the container may have been restarted. An agent that has just
// started may not know the container yet.
func (f *follower) find(ctx context.Context) ([]LogOptions, error) {
	pods, err := f.client.Pods(ctx)
	if err != nil {
		return nil, err
	}
	for i := range pods {
		p := &pods[i]
		switch {
		case p.Namespace != f.pod.Namespace || p.Name != f.pod.Name:
			continue
		case p.UID != f.pod.UID:
			return nil, errReplaced
		}
		status := statusOf(p, f.container)
		if status == nil {
			return nil, errors.New("the agent does not know the container yet")
		}
		return f.parts(status), nil
	}
	return nil, fmt.Errorf("there is no pod %s/%s", f.pod.Namespace, f.pod.Name)
}

// parts returns the requests for what was written since the log broke off: of the previous
// instance, if it wrote since then, and of the current instance and later ones. The resumer knows
// lines that were written already, so requests may ask for too much.
func (f *follower) parts(status *v1.ContainerStatus) []LogOptions {
	last := status.LastTerminationState.Terminated
	// The API's times have whole seconds.
	if f.opts.Previous || last == nil || f.opts.Since.IsZero() ||
		last.FinishedAt.Add(time.Second).Before(f.opts.Since) {
		return []LogOptions{f.opts}
	}
	if last.StartedAt.After(f.out.newest) {
		f.report("the container was restarted more than once meanwhile: some of its lines may be missing")
	}
	previous := f.opts
	previous.Previous = true
	return []LogOptions{previous, f.opts}
}

// from returns the options for what was written since a time. If since is zero, because there was
// no line, they ask for lines since the request at began: the last lines of that request.
func (o LogOptions) from(since, began time.Time) LogOptions {
	switch {
	case !since.IsZero():
		o.Since = since
	case o.Tail != nil:
		o.Since = began
	case o.SinceSeconds != nil:
		o.Since = began.Add(-time.Duration(*o.SinceSeconds) * time.Second)
	}
	o.Tail, o.SinceSeconds = nil, nil
	return o
}

// statusOf returns the status of a container, or nil if there is none.
func statusOf(pod *v1.Pod, container string) *v1.ContainerStatus {
	for _, list := range [][]v1.ContainerStatus{
		pod.Status.ContainerStatuses, pod.Status.InitContainerStatuses, pod.Status.EphemeralContainerStatuses,
	} {
		for i := range list {
			if list[i].Name == container {
				return &list[i]
			}
		}
	}
	return nil
}
