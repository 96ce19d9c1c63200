package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berthd/berth/client"
	"github.com/berthd/berth/client/show"
	"github.com/berthd/berth/internal/pods"
)

// readyFlags are the flags of a verb that can wait until a pod is ready.
type readyFlags struct {
	wait    bool
	timeout time.Duration
}

// addTo adds --wait and --timeout to a verb.
func (f *readyFlags) addTo(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&f.wait, "wait", false, "wait until the pod is ready, or has succeeded")
	cmd.Flags().DurationVar(&f.timeout, "timeout", 0, "longest --wait, such as 90s (default: as long as it takes)")
}

// check reports a timeout for a wait that there is not.
func (f *readyFlags) check() error {
	switch {
	case f.timeout < 0:
		return wrongly("--timeout %s: must be more than 0", f.timeout)
	case f.timeout > 0 && !f.wait:
		return wrongly("--timeout is the longest --wait: give both")
	}
	return nil
}

// errLate is the cause of a wait that has taken too long.
var errLate = errors.New("the time is over")

// awaited is a pod that somebody waits for.
type awaited struct {
	client          *client.Client
	namespace, name string
	// uid is the pod that must be the one of that name; empty if it may be replaced.
	uid types.UID
	// restarts has the containers that are to restart, with their restart counts before.
	restarts map[string]int32
}

// restarting returns the pod to wait for after the restart of containers. before is the pod as it
// was then.
func restarting(c *client.Client, before *v1.Pod, containers []string) *awaited {
	a := &awaited{
		client: c, namespace: before.Namespace, name: before.Name, uid: before.UID, restarts: map[string]int32{},
	}
	for _, text := range containers {
		name, _, _ := strings.Cut(text, " ") // what follows says how it restarts
		a.restarts[name] = restartsOf(before, name)
	}
	return a
}

// restartsOf returns how often a container has restarted.
func restartsOf(pod *v1.Pod, container string) int32 {
	for _, s := range slices.Concat(pod.Status.ContainerStatuses, pod.Status.InitContainerStatuses) {
		if s.Name == container {
			return s.RestartCount
		}
	}
	return 0
}

// await waits until the pod is ready, or has succeeded, and prints that. It ends at once if the
// node is drained, because no pod starts then.
func (f *readyFlags) await(ctx context.Context, a *awaited, w io.Writer) error {
	waiting := ctx
	if f.timeout > 0 {
		var cancel context.CancelFunc
		waiting, cancel = context.WithTimeoutCause(ctx, f.timeout, errLate)
		defer cancel()
	}
	for looked := (time.Time{}); ; {
		word, err := a.look(waiting)
		drained := ""
		if word == "" && err == nil && time.Since(looked) >= nodeLook {
			drained, looked = drainOf(waiting, a.client), time.Now()
		}
		switch {
		case word != "":
			_, err = fmt.Fprintf(w, "%s/%s %s\n", a.namespace, a.name, word)
			return err
		case drained != "":
			return fmt.Errorf("%s/%s does not start: %s", a.namespace, a.name, drained)
		case errors.Is(context.Cause(waiting), errLate):
			return fmt.Errorf("%s/%s is not ready after %s%s", a.namespace, a.name, f.timeout, a.reason(ctx))
		case err != nil:
			return err
		}
		select {
		case <-waiting.Done():
		case <-time.After(stopLook):
		}
	}
}

// look returns the word for the pod's state once that is what was waited for.
func (a *awaited) look(ctx context.Context) (word string, err error) {
	all, err := a.client.Pods(ctx)
	if err != nil {
		return "", err
	}
	i := slices.IndexFunc(all, func(p v1.Pod) bool {
		return p.Namespace == a.namespace && p.Name == a.name && (a.uid == "" || a.uid == p.UID)
	})
	switch {
	case i < 0 && a.uid != "":
		return "", fmt.Errorf("%s/%s is gone: nothing to wait for", a.namespace, a.name)
	case i < 0:
		return "", nil
	}
	return a.state(&all[i])
}

// state is look for the pod that was found.
func (a *awaited) state(pod *v1.Pod) (word string, err error) {
	switch phase := pod.Status.Phase; {
	case pods.Held(pod) || pod.DeletionTimestamp != nil:
		return "", nil
	case phase == v1.PodSucceeded:
		return "has succeeded", nil
	case phase == v1.PodFailed:
		return "", fmt.Errorf("%s has failed: %s: see \"berth why %[1]s\"", pods.FullName(pod),
			cmp.Or(show.Clean(pod.Status.Message), pod.Status.Reason, "a container ended with an error"))
	}
	for container, before := range a.restarts {
		if restartsOf(pod, container) <= before {
			return "", nil
		}
	}
	if slices.ContainsFunc(pod.Status.Conditions, func(c v1.PodCondition) bool {
		return c.Type == v1.PodReady && c.Status == v1.ConditionTrue
	}) {
		return "is ready", nil
	}
	return "", nil
}

// reason says what the pod waits for, if the agent knows.
func (a *awaited) reason(ctx context.Context) string {
	why, err := a.client.Why(ctx, a.namespace, a.name)
	if err != nil {
		return fmt.Sprintf(": see \"berth why %s/%s\"", a.namespace, a.name)
	}
	return fmt.Sprintf(": it is %s and waits for: %s: see \"berth why %s/%s\"", why.Status,
		cmp.Or(show.Clean(why.WaitsFor), "nothing"), a.namespace, a.name)
}
