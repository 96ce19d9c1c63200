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
)

const (
	// debugPoll is how often the state of a container that is to be connected with is asked for.
	debugPoll = 200 * time.Millisecond
	// debugEnd is how long a container may take to be told of as ended whose streams have.
	debugEnd = 3 * time.Second
	// debugRecall bounds, in bytes, how much of a log is looked through for what was printed while nobody was connected.
	debugRecall = 256 << 10
)

// debugSession connects the terminal with a container that was added to a pod. What the container prints before there is a connection, is in its log alone.
type debugSession struct {
	*debugOptions

	client      *client.Client
	pod         *v1.Pod
	out, errOut io.Writer
	// shown is how many bytes of the container's output were printed from its log, streamed how many came over the connection.
	shown    int64
	streamed atomic.Int64
}

// connect waits until the container runs, and connects until it ends. Its exit code becomes that of the verb.
func (d *debugSession) connect(cmd *cobra.Command) error {
	ctx := cmd.Context()
	state, err := d.await(ctx, func(s v1.ContainerState) bool { return s.Running != nil || s.Terminated != nil })
	if err != nil {
		return ended(ctx, err)
	}
	if state.Terminated == nil {
		_ = d.recall(ctx, 0) // a log that is not there yet is looked at again in the end
		d.say(d.errOut, "If you don't see a command prompt, try pressing enter.")
		err = d.run(cmd, d.pod.Namespace+"/"+d.pod.Name, d.attach)
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
	return d.verdict(state.Terminated)
}

// attach is the connection; it counts what comes over it.
func (d *debugSession) attach(ctx context.Context, c *client.Client, pod *v1.Pod, t client.Target, stdio client.Stdio) error {
	stdio.Stdout = &countingWriter{stdio.Stdout, &d.streamed}
	if stdio.Stderr != nil {
		stdio.Stderr = &countingWriter{stdio.Stderr, &d.streamed}
	}
	return attach(ctx, c, pod, t, stdio)
}

// recall prints what the container's log has beyond what was shown of it and what came, after that, over the connection: its output has grown by more than that
// where the connection came too late. Of a long session nothing is missing that a reader would want back.
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

// verdict is the error of a container's end.
func (d *debugSession) verdict(t *v1.ContainerStateTerminated) error {
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

// await waits until what is looked for holds of the container's state, telling what the container waits for.
func (d *debugSession) await(ctx context.Context, holds func(v1.ContainerState) bool) (v1.ContainerState, error) {
	told := ""
	for {
		state, err := d.state(ctx)
		switch w := state.Waiting; {
		case err != nil || holds(state):
			return state, err
		case w != nil && w.Message != "" && w.Message != told:
			told = w.Message
			d.say(d.errOut, "%s: %s", w.Reason, show.Clean(told))
		}
		select {
		case <-ctx.Done():
			return state, fmt.Errorf("waiting for container %s: %w", d.container, context.Cause(ctx))
		case <-time.After(debugPoll):
		}
	}
}

// state asks for the container's state; an empty one for a container that is not there yet.
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
