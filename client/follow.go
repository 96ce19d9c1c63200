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
	// reconnectFor is how long an agent that went away is waited for.
	reconnectFor = 30 * time.Second
	// reconnectFirst is the first pause between two attempts; it doubles up to reconnectMost.
	reconnectFirst = 50 * time.Millisecond
	reconnectMost  = time.Second
)

// FollowLog writes a container's log to w, over restarts of the container, until it has ended for good, ctx has, or LimitBytes are written; opts.Follow is taken
// as set. Each write is of a line, or of a piece of a very long one.
//
// An agent that goes away is waited for, a while, and the log goes on where it was, without losing or repeating a line. tell, if not nil, is told of that, and
// of lines that may be missing since the container was restarted more than once meanwhile. pod is as the caller knows it.
func (c *Client) FollowLog(ctx context.Context, pod *v1.Pod, container string, opts LogOptions, w io.Writer, tell func(string)) error {
	f := &follower{client: c, pod: pod, container: container, opts: opts, patience: reconnectFor, began: time.Now(), tell: tell}
	f.out = newResumer(w, opts.Timestamps, opts.LimitBytes)
	// The times are needed here, and bytes are counted without those that nobody asked for.
	f.opts.Follow, f.opts.Timestamps, f.opts.LimitBytes = true, true, nil
	if f.tell == nil {
		f.tell = func(string) {}
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
	tell      func(string)
}

// errGone is the error of a log whose agent has something else under its name.
var errGone = errors.New("the pod was replaced while the berth agent was away: the end of its log is not to be had here")

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
			f.tell(fmt.Sprintf("the berth agent ended the stream; reconnecting for up to %s", f.patience))
			f.opts = f.opts.from(f.out.since(), f.began)
			if body, rest, err = f.reconnect(ctx); err != nil {
				return err
			}
			f.tell("reconnected")
		}
	}
}

func (f *follower) open(ctx context.Context, opts LogOptions) (io.ReadCloser, error) {
	return f.client.Logs(ctx, f.pod.Namespace, f.pod.Name, f.container, opts)
}

// brokenOff reports whether an error of reading is the connection's.
func brokenOff(err error) bool {
	return errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, unix.ECONNRESET) || errors.Is(err, unix.EPIPE)
}

// reconnect opens the log again, from where it was; rest is what is to be read after it.
func (f *follower) reconnect(ctx context.Context) (body io.ReadCloser, rest []LogOptions, err error) {
	waiting, cancel := context.WithTimeout(ctx, f.patience)
	defer cancel()
	var last error
	for pause := reconnectFirst; ; pause = min(2*pause, reconnectMost) {
		parts, err := f.find(waiting)
		if err == nil {
			// The answer may outlast the waiting.
			if body, err = f.open(ctx, parts[0]); err == nil {
				return body, parts[1:], nil
			}
		}
		if errors.Is(err, errGone) {
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
			return nil, nil, fmt.Errorf("the berth agent ended the stream and did not give it back within %s: %w", f.patience, last)
		}
	}
}

// find asks the agent for the container and says how its log is to be asked for, in one or two parts: the container may have been restarted. An agent that has
// just started may not know of it yet.
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
			return nil, errGone
		}
		status := statusOf(p, f.container)
		if status == nil {
			return nil, errors.New("the agent does not know the container yet")
		}
		return f.parts(status), nil
	}
	return nil, fmt.Errorf("there is no pod %s/%s", f.pod.Namespace, f.pod.Name)
}

// parts are the requests for what has come since the log broke off: of the instance before the current one, if that wrote since, and of the current one and those
// that follow. Lines that were written already are known, so that asking for too much does no harm.
func (f *follower) parts(status *v1.ContainerStatus) []LogOptions {
	last := status.LastTerminationState.Terminated
	// The API's times are whole seconds.
	if f.opts.Previous || last == nil || f.opts.Since.IsZero() || last.FinishedAt.Add(time.Second).Before(f.opts.Since) {
		return []LogOptions{f.opts}
	}
	if last.StartedAt.After(f.out.newest) {
		f.tell("the container was restarted more than once meanwhile: some of its lines may be missing")
	}
	previous := f.opts
	previous.Previous = true
	return []LogOptions{previous, f.opts}
}

// from returns the options for what has come since a time, or where that is zero, because nothing came, since the request was made at began: the last lines
// that it asked for are then those that come.
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

// statusOf returns the status of a container; nil if there is none.
func statusOf(pod *v1.Pod, container string) *v1.ContainerStatus {
	for _, list := range [][]v1.ContainerStatus{pod.Status.ContainerStatuses, pod.Status.InitContainerStatuses, pod.Status.EphemeralContainerStatuses} {
		for i := range list {
			if list[i].Name == container {
				return &list[i]
			}
		}
	}
	return nil
}
