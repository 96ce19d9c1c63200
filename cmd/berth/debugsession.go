package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"
	v1 "k8s.io/api/core/v1"

	"github.com/berthd/berth/client"
	"github.com/berthd/berth/client/show"
	"github.com/berthd/berth/internal/pods"
)

const (
	// debugPoll is the time between two requests for the state of the container to connect to.
	debugPoll = 200 * time.Millisecond
	// debugEnd is how long the agent may take to report the end of a container after its streams
	// have ended.
	debugEnd = 3 * time.Second
	// debugRecall is how many bytes of a log are searched for output from before the connection.
	debugRecall = 256 << 10
)

// debugSession connects the terminal to a container that was added to a pod. Output from before the
// connection is only in the container's log.
type debugSession struct {
	*debugOptions

	client      *client.Client
	pod         *v1.Pod
	out, errOut io.Writer
	// shown is how many bytes of the container's output were printed from its log. streamed is how
	// many came over the connection.
	shown    int64
	streamed atomic.Int64
}

// connect waits until the container runs, and connects until it ends. The verb ends with the
// container's exit code.
func (d *debugSession) connect(cmd *cobra.Command) error {
	ctx := cmd.Context()
	state, err := d.await(ctx, func(s v1.ContainerState) bool { return s.Running != nil || s.Terminated != nil })
	if err != nil {
		return ended(ctx, err)
	}
	if state.Terminated == nil {
		_ = d.recall(ctx, 0) // if there is no log yet, it is read at the end
		d.say(d.errOut, "If you don't see a command prompt, try pressing enter.")
		err = d.run(cmd, pods.FullName(d.pod), d.attach)
		if ctx.Err() != nil {
			return err
		}
		waiting, cancel := context.WithTimeout(ctx, debugEnd)
		defer cancel()
		end, waitErr := d.await(waiting, func(s v1.ContainerState) bool { return s.Terminated != nil })
		switch {
		case waitErr != nil && err != nil:
			return err
		case waitErr != nil && waiting.Err() != nil:
			d.say(d.errOut, "The container runs on: berth attach -it %s -c %s", d.pod.Name, d.container)
			return nil
		case waitErr != nil:
			return ended(ctx, waitErr)
		}
		state = end
	}
	if err := d.recall(ctx, d.streamed.Load()); err != nil {
		return ended(ctx, err)
	}
	return d.endError(state.Terminated)
}

// attach is the connection. It counts the bytes that come over it.
func (d *debugSession) attach(
	ctx context.Context, c *client.Client, pod *v1.Pod, t client.Target, stdio client.Stdio,
) error {
	stdio.Stdout = &countingWriter{stdio.Stdout, &d.streamed}
	if stdio.Stderr != nil {
		stdio.Stderr = &countingWriter{stdio.Stderr, &d.streamed}
	}
	return attach(ctx, c, pod, t, stdio)
}

// recall prints the part of the container's log that was neither shown nor, after that, came over
// the connection. There is such a part if the connection came too late. After a long session recall
// prints nothing, because a reader does not need the start again.
func (d *debugSession) recall(ctx context.Context, streamed int64) error {
	if streamed > debugRecall {
		return nil
	}
	limit := d.shown + streamed + debugRecall
	log, err := d.client.Logs(ctx, d.pod.Namespace, d.pod.Name, d.container, client.LogOptions{LimitBytes: &limit})
	if err != nil {
		return err
	}
	defer log.Close()
	text, err := io.ReadAll(log)
	if err != nil {
		return fmt.Errorf("reading the log of container %s: %w", d.container, err)
	}
	if missing := int64(len(text)) - d.shown - streamed; missing > 0 {
		if streamed > 0 {
			d.say(d.errOut, "Printed before the connection was there:")
		}
		if _, err := d.out.Write(text[d.shown : d.shown+missing]); err != nil {
			return err
		}
		d.shown += missing
	}
	return nil
}

// endError is the error for a container's end.
func (d *debugSession) endError(t *v1.ContainerStateTerminated) error {
	switch {
	case t.Reason == reasonStartError:
		fmt.Fprintf(d.errOut, "container %s cannot be started: %s\n", d.container, show.Clean(t.Message))
		return &exitError{code: startErrorCode(t.Message)}
	case t.ExitCode != 0:
		d.say(d.errOut, "%s", (&client.ExitError{Code: int(t.ExitCode)}).Error())
		return &exitError{code: int(t.ExitCode)}
	}
	return nil
}

// await waits until holds is true for the container's state. It prints what the container waits
// for.
func (d *debugSession) await(ctx context.Context, holds func(v1.ContainerState) bool) (v1.ContainerState, error) {
	printed := ""
	for {
		state, err := d.state(ctx)
		switch w := state.Waiting; {
		case err != nil || holds(state):
			return state, err
		case w != nil && w.Message != "" && w.Message != printed:
			printed = w.Message
			d.say(d.errOut, "%s: %s", w.Reason, show.Clean(printed))
		}
		select {
		case <-ctx.Done():
			return state, fmt.Errorf("waiting for container %s: %w", d.container, context.Cause(ctx))
		case <-time.After(debugPoll):
		}
	}
}

// state requests the container's state. It is empty as long as the container does not exist.
func (d *debugSession) state(ctx context.Context) (v1.ContainerState, error) {
	pods, err := d.client.Pods(ctx)
	if err != nil {
		return v1.ContainerState{}, err
	}
	i := slices.IndexFunc(pods, func(p v1.Pod) bool { return p.UID == d.pod.UID })
	if i < 0 {
		return v1.ContainerState{}, errors.New("pod " + d.pod.Namespace + "/" + d.pod.Name + " is gone")
	}
	for _, s := range pods[i].Status.EphemeralContainerStatuses {
		if s.Name == d.container {
			return s.State, nil
		}
	}
	return v1.ContainerState{}, nil
}

// countingWriter counts what is written.
type countingWriter struct {
	w io.Writer
	n *atomic.Int64
}

func (c *countingWriter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n.Add(int64(n))
	return n, err
}
