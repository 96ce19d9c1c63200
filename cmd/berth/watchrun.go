package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/berthd/berth/client/api"
	"github.com/berthd/berth/client/show"
	"github.com/berthd/berth/cri"
	"github.com/berthd/berth/cri/logs"
	"github.com/berthd/berth/internal/pods"
)

// watch shows what happens to the pod until Ctrl-C, the end of the agent or, with --once, the end
// of the pod.
func (r *runner) watch(ctx context.Context, ended chan error) (code int, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	changed, stopWatch := r.agent.WatchPods()
	defer stopWatch()
	t := &tailers{runner: r, began: map[tailKey]bool{}}
	var events sync.WaitGroup
	events.Go(func() { r.printEvents(ctx) })
	defer events.Wait()
	defer cancel()
	// After Ctrl-C the readers of logs continue, to show what the containers print while they are
	// stopped. The caller of watch stops the pod, and the readers end with it.
	status, printed := "", false
	look := time.NewTicker(time.Second)
	defer look.Stop()
	for {
		pod := r.pod()
		if pod != nil {
			t.follow(pod)
			if now := api.Summarize(pod).Status; now != status {
				status = now
				fmt.Fprintf(r.errOut, "%s pod %s is %s\n", clock(time.Now()), pod.Name, status)
			}
		}
		if pod != nil && r.once {
			if done, code, err := runResult(pod); done {
				t.wait(logsTimeout)
				return code, err
			}
		}
		if pod != nil && !r.once && !printed && pods.Terminal(pod.Status.Phase) {
			printed = true
			fmt.Fprintln(r.errOut, "The pod has ended; Ctrl-C removes it. With --once, berth run ends with the pod.")
		}
		select {
		case <-ctx.Done():
			r.tails = t
			return r.interruptedCode(), nil
		case err := <-ended:
			ended <- nil
			return cannotStart, cmp.Or(err, errors.New("the agent ended"))
		case <-changed:
		case <-look.C:
		}
	}
}

func (r *runner) pod() *v1.Pod {
	pods := r.agent.Pods()
	if len(pods) == 0 {
		return nil
	}
	return pods[0]
}

func clock(t time.Time) string { return t.Format("15:04:05") }

// printEvents writes the events to standard error.
func (r *runner) printEvents(ctx context.Context) {
	kept, following, stop := r.agent.WatchEvents()
	defer stop()
	tell := func(e *v1.Event) {
		if e.InvolvedObject.Kind == "Node" && (e.Type == v1.EventTypeNormal || e.Reason == "CgroupV1") {
			return // what the agent says at every start is not about the pod
		}
		subject := e.Reason
		if c := api.ContainerOf(e); c != "" {
			subject += " " + c
		}
		fmt.Fprintf(r.errOut, "%s %s: %s\n", clock(e.LastTimestamp.Time), subject, show.Clean(e.Message))
	}
	for i := range kept {
		tell(&kept[i])
	}
	for {
		select {
		case <-ctx.Done():
			return
		case e, ok := <-following:
			if !ok {
				return
			}
			tell(&e)
		}
	}
}

// runResult reports whether a pod that runs once has ended or cannot start, and its exit code.
func runResult(pod *v1.Pod) (done bool, code int, err error) {
	statuses := slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses)
	for i := range statuses {
		s := &statuses[i]
		if t := failedStart(s); t != nil {
			return true, startErrorCode(t.Message), fmt.Errorf("container %s cannot be started: %s", s.Name,
				show.Clean(t.Message))
		}
		if w := s.State.Waiting; !pods.Terminal(pod.Status.Phase) && w != nil && hopeless(w.Reason) {
			return true, startErrorCode(w.Message), fmt.Errorf("container %s: %s: %s", s.Name, w.Reason,
				show.Clean(w.Message))
		}
	}
	if !pods.Terminal(pod.Status.Phase) {
		return false, 0, nil
	}
	var first *v1.ContainerStateTerminated
	for i := range statuses {
		t := statuses[i].State.Terminated
		if t != nil && t.ExitCode != 0 && (first == nil || t.FinishedAt.Before(&first.FinishedAt)) {
			first = t
		}
	}
	switch {
	case pod.Status.Phase == v1.PodSucceeded:
		return true, 0, nil
	case pod.Status.Reason != "" && pod.Status.StartTime == nil || len(statuses) == 0:
		return true, cannotStart, fmt.Errorf("the pod was refused: %s: %s", pod.Status.Reason,
			show.Clean(pod.Status.Message))
	case first == nil:
		return true, 1, fmt.Errorf("the pod failed: %s: %s", pod.Status.Reason, show.Clean(pod.Status.Message))
	}
	return true, int(first.ExitCode), nil
}

// hopeless reports whether a container that waits for this reason will not start soon enough for a
// run whose end somebody waits for.
func hopeless(reason string) bool {
	switch reason {
	case "InvalidImageName", "ErrImageNeverPull", "ImagePullBackOff", "ImageInspectError",
		"CreateContainerConfigError", "CreateContainerError", "RunContainerError":
		return true
	}
	return false
}

// logsTimeout is how long the readers of logs may take after the end of the pod.
const logsTimeout = 5 * time.Second

// tailKey is one attempt of a container.
type tailKey struct {
	container string
	attempt   int
}

// tailers follow the logs of all attempts of the pod's containers.
type tailers struct {
	runner *runner
	began  map[tailKey]bool
	wg     sync.WaitGroup
}

// follow starts a reader for each attempt that has none yet.
func (t *tailers) follow(pod *v1.Pod) {
	single := len(pod.Spec.Containers)+len(pod.Spec.InitContainers) == 1
	for _, c := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		if c.State.Running == nil && c.State.Terminated == nil && c.LastTerminationState.Terminated == nil {
			continue
		}
		for attempt := 0; attempt <= int(c.RestartCount); attempt++ {
			key := tailKey{c.Name, attempt}
			if t.began[key] {
				continue
			}
			path, err := filepath.Rel(t.runner.home.logs,
				filepath.Join(cri.PodLogDir(t.runner.home.logs, cri.IDOf(pod)), cri.ContainerLogPath(c.Name, attempt)))
			if err != nil {
				continue
			}
			file := logs.File{Root: t.runner.home.logs, Path: path}
			if _, err := os.Lstat(filepath.Join(file.Root, file.Path)); err != nil {
				continue // the log is gone already, or has not begun yet
			}
			t.began[key] = true
			t.wg.Go(func() { t.read(pod, key, file, single) })
		}
	}
}

// read copies the log of one attempt to standard output until the attempt has ended.
func (t *tailers) read(pod *v1.Pod, key tailKey, file logs.File, single bool) {
	prefix := "[" + key.container + "] "
	if single {
		prefix = ""
	}
	out := &lineWriter{w: t.runner.out, prefix: prefix}
	defer out.flush()
	err := logs.Read(context.Background(), logs.Output{Stdout: out, Stderr: out}, file, logs.Options{Follow: true},
		logs.Deps{
			Running:  func(context.Context) (bool, error) { return t.runner.lives(key), nil },
			Interval: 100 * time.Millisecond,
		})
	if err != nil {
		fmt.Fprintf(t.runner.errOut, "log of container %s broken off: %v\n", key.container, err)
	}
}

// lives reports whether an attempt may still write to its log.
func (r *runner) lives(key tailKey) bool {
	pod := r.pod()
	if pod == nil {
		return false
	}
	for _, c := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		if c.Name == key.container {
			return int(c.RestartCount) == key.attempt && c.State.Running != nil
		}
	}
	return false
}

// wait waits for the readers, at most for limit.
func (t *tailers) wait(limit time.Duration) {
	done := make(chan struct{})
	go func() {
		t.wg.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(limit):
	}
}
