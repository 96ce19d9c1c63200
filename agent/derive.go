package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/berthd/berth/agent/plan"
	"github.com/berthd/berth/agent/source"
	"github.com/berthd/berth/agent/steps"
	"github.com/berthd/berth/agent/worker"
	"github.com/berthd/berth/cri"
	"github.com/berthd/berth/cri/logs"
	"github.com/berthd/berth/status"
)

// derive computes the pod's status from what the pass observed and found, writes the checkpoint, and only then tells it: what was told must not be
// forgotten by a crash. A checkpoint that cannot be written is the error; the status is told all the same.
func (a *Agent) derive(p *steps.Pass, work worker.Work, res worker.Result) error {
	in := status.Input{
		Pod:         p.Pod,
		Previous:    p.Record.Status,
		RuntimeName: a.runtimeName(),
		Sandbox:     p.Observed.Sandbox(),
		Earlier:     map[string]bool{},
		Waiting:     p.Waiting,
		Probes:      map[string]status.Probe{},
		Hooked:      p.Record.PostStart,
		Condemned:   p.Record.Condemned,
		HostIPs:     a.node.HostIPs(),
		Problem:     p.Problem,
		Resize:      resizeStatus(p),
		Terminating: work.Phase != worker.Running,
		Terminated:  work.Phase == worker.Terminating && res.Done,
		Now:         metav1.NewTime(time.Now()),

		RecursiveReadOnly: a.generate(p.Pod).Features.RecursiveReadOnly,

		TerminationMessages: a.terminationMessages(p),
	}
	for _, c := range p.Observed.Containers {
		in.Containers = append(in.Containers, c.ContainerStatus)
		in.Earlier[c.Id] = c.SandboxID != in.Sandbox.GetId()
	}
	for name, r := range a.probes.Results(p.Pod.UID) {
		in.Probes[name] = status.Probe{ContainerID: r.ContainerID, Started: ptr.To(r.Started), Ready: ptr.To(r.Ready)}
	}
	if r := p.Record.RestartAll; r != nil {
		in.Removed = r.Removed
		in.RestartingAll = r.Cleaning && !in.Terminating
	}
	in.RestartingAll = in.RestartingAll || !in.Terminating && plan.AsksRestartAll(p.Pod, &p.Observed)
	if r := p.Record.Rejected; r != nil {
		in.Rejected = &status.Failure{Reason: r.Reason, Message: r.Message}
	}
	back := comesBack(p.Pod, work.Stop)
	if s := work.Stop; s != nil && s.Reason != "" && !back {
		in.Failed = &status.Failure{Reason: s.Reason, Message: s.Message, Disruption: disruption(s)}
	}
	if p.Pod.Spec.HostNetwork {
		in.PodIPs = in.HostIPs
	}
	derived, before := status.Derive(in), p.Record.Status
	if p.Early && terminal(&derived) {
		return nil // whoever waits for a pod's end reads why it ended, and its last words: they are told with it
	}
	if back {
		derived.Reason, derived.Message = work.Stop.Reason, work.Stop.Message
	}
	p.Record.Status = &derived
	a.metrics.ContainersEnded(before, &derived)
	a.trackLogs(p.Pod, &p.Observed)
	p.Record.Probes = a.probes.Snapshot(p.Pod.UID)
	err := p.Save()
	if _, changed := a.status.Set(p.Pod, derived); changed {
		a.startedUp(p.Pod, before, &derived)
	}
	return err
}

// earlyWait is how long the runtime has to list an exit that it has told of.
const earlyWait = time.Second

// toldEarly tells of the containers that have ended and that the runtime still lists as running, and reports whether there are any. Their last words
// and what follows have to wait until the runtime is done with them.
func (a *Agent) toldEarly(p *steps.Pass, work worker.Work) bool {
	observed, early := a.observer.Early(p.Observed)
	if !early {
		return false
	}
	if p.Record.Status != nil {
		p.Observed, p.Early = observed, true
		_ = a.derive(p, work, worker.Result{}) // the pass that follows tells of what cannot be written
	}
	return true
}

// died reports whether a container has ended that the last status says is running.
func died(p *steps.Pass) bool {
	if p.Record.Status == nil {
		return false
	}
	running := map[string]bool{}
	for _, list := range [][]v1.ContainerStatus{p.Record.Status.InitContainerStatuses, p.Record.Status.ContainerStatuses} {
		for i := range list {
			if list[i].State.Running != nil {
				_, id, _ := strings.Cut(list[i].ContainerID, "://")
				running[id] = true
			}
		}
	}
	return slices.ContainsFunc(p.Observed.Containers, func(c *plan.Container) bool { return c.Exited() && running[c.Id] })
}

// terminationMessages returns, by id, what the containers that ended left as their last words; each is read once, while its file is there, and
// dropped with its container. What cannot be read now is read again in the next pass.
func (a *Agent) terminationMessages(p *steps.Pass) map[string]string {
	st := a.pods.state(p.Pod.UID)
	if p.Early {
		return st.messages // those of the containers that ended just now may not be written yet
	}
	maps.DeleteFunc(st.messages, func(id, _ string) bool {
		return !slices.ContainsFunc(p.Observed.Containers, func(c *plan.Container) bool { return c.Id == id })
	})
	for _, c := range p.Observed.Containers {
		if !c.Exited() {
			continue
		}
		if _, known := st.messages[c.Id]; known {
			continue
		}
		message, err := a.terminationMessage(p.Pod, c)
		if err != nil {
			p.Log.Debug("last words not read", "container", c.Name(), "err", err)
			continue
		}
		st.messages[c.Id] = message
	}
	return st.messages
}

// terminationMessage returns the message that an ended container left in its file or, where its policy says so, at the end of its log. What is not there any more is
// an empty message, and what cannot be read an error.
func (a *Agent) terminationMessage(pod *v1.Pod, c *plan.Container) (string, error) {
	id, err := cri.ParseContainer(c.Labels, c.Annotations)
	if err != nil {
		return "", nil //nolint:nilerr // without usable labels there is no message to be had, and never will be
	}
	var file string
	for _, m := range c.Mounts {
		if m.ContainerPath != id.TerminationMessagePath || m.ContainerPath == "" {
			continue
		}
		if file, err = a.volumes.ReadTerminationMessage(m.HostPath, status.MaxTerminationMessage); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
	}
	var tail []byte
	if status.FallbackToLogs(id.TerminationMessagePolicy, c.ExitCode, c.Reason, []byte(file)) {
		if tail, err = a.logTail(pod, c); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
	}
	return status.TerminationMessage([]byte(file), tail), nil
}

// runtimeName is the scheme of container ids.
func (a *Agent) runtimeName() string {
	if v := a.version.Load(); v != nil {
		return v.RuntimeName
	}
	return status.DefaultRuntimeName
}

// startedUp measures how long a pod took from being seen to Running.
func (a *Agent) startedUp(pod *v1.Pod, before, after *v1.PodStatus) {
	if after.Phase != v1.PodRunning || before == nil || before.Phase != v1.PodPending {
		return
	}
	if seen, err := time.Parse(time.RFC3339Nano, pod.Annotations[source.AnnotationSeen]); err == nil {
		a.metrics.PodStarted(time.Since(seen))
	}
}

// logTailTimeout bounds the reading of a log's end for a termination message.
const logTailTimeout = 5 * time.Second

// logTail returns the last lines of an ended container's output; none where its log is not one of ours.
func (a *Agent) logTail(pod *v1.Pod, c *plan.Container) ([]byte, error) {
	root := a.cfg.Kubelet.PodLogsDir
	path, err := filepath.Rel(root, c.LogPath)
	if err != nil || c.LogPath == "" {
		return nil, nil // somebody else's container
	}
	ctx, cancel := context.WithTimeout(context.Background(), logTailTimeout)
	defer cancel()
	var out bytes.Buffer
	lines := int64(status.MaxTerminationLogLines)
	err = logs.Read(ctx, logs.Output{Stdout: &out, Stderr: &out}, logs.File{Root: root, Path: path}, logs.Options{Tail: &lines}, logs.Deps{Log: a.log})
	if err != nil {
		return nil, fmt.Errorf("reading the end of the log of container %s of pod %s/%s: %w", c.Name(), pod.Namespace, pod.Name, err)
	}
	return out.Bytes(), nil
}
