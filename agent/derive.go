package agent

import (
	"bytes"
	"context"
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
		Waiting:     p.Waiting,
		Probes:      map[string]status.Probe{},
		Hooked:      p.Record.PostStart,
		HostIPs:     a.node.HostIPs(),
		Problem:     p.Problem,
		Terminating: work.Phase != worker.Running,
		Terminated:  work.Phase == worker.Terminating && res.Done,
		Now:         metav1.NewTime(time.Now()),

		TerminationMessages: a.terminationMessages(p),
	}
	for _, c := range p.Observed.Containers {
		in.Containers = append(in.Containers, c.ContainerStatus)
	}
	for name, r := range a.probes.Results(p.Pod.UID) {
		in.Probes[name] = status.Probe{ContainerID: r.ContainerID, Started: ptr.To(r.Started), Ready: ptr.To(r.Ready)}
	}
	if r := p.Record.Rejected; r != nil {
		in.Rejected = &status.Failure{Reason: r.Reason, Message: r.Message}
	}
	if s := work.Stop; s != nil && s.Reason != "" {
		in.Failed = &status.Failure{Reason: s.Reason, Message: s.Message}
	}
	if p.Pod.Spec.HostNetwork {
		in.PodIPs = in.HostIPs
	}
	derived, before := status.Derive(in), p.Record.Status
	p.Record.Status = &derived
	p.Record.Probes = a.probes.Snapshot(p.Pod.UID)
	err := p.Save()
	if _, changed := a.status.Set(p.Pod, derived); changed {
		a.startedUp(p.Pod, before, &derived)
	}
	return err
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
// dropped with its container.
func (a *Agent) terminationMessages(p *steps.Pass) map[string]string {
	st := a.pods.state(p.Pod.UID)
	maps.DeleteFunc(st.messages, func(id, _ string) bool {
		return !slices.ContainsFunc(p.Observed.Containers, func(c *plan.Container) bool { return c.Id == id })
	})
	for _, c := range p.Observed.Containers {
		if !c.Exited() {
			continue
		}
		if _, known := st.messages[c.Id]; !known {
			st.messages[c.Id] = a.terminationMessage(p.Pod, c)
		}
	}
	return st.messages
}

func (a *Agent) terminationMessage(pod *v1.Pod, c *plan.Container) string {
	id, err := cri.ParseContainer(c.Labels, c.Annotations)
	if err != nil {
		return ""
	}
	var file string
	for _, m := range c.Mounts {
		if m.ContainerPath == id.TerminationMessagePath && m.ContainerPath != "" {
			file, err = a.volumes.ReadTerminationMessage(m.HostPath, status.MaxTerminationMessage)
			if err != nil {
				a.log.Debug("termination message not read", "pod", pod.Namespace+"/"+pod.Name, "container", c.Name(), "err", err)
			}
		}
	}
	var tail []byte
	if status.FallbackToLogs(id.TerminationMessagePolicy, c.ExitCode, c.Reason, []byte(file)) {
		tail = a.logTail(pod, c)
	}
	return status.TerminationMessage([]byte(file), tail)
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

// logTail returns the last lines of an ended container's output.
func (a *Agent) logTail(pod *v1.Pod, c *plan.Container) []byte {
	root := a.cfg.Kubelet.PodLogsDir
	path, err := filepath.Rel(root, c.LogPath)
	if err != nil || c.LogPath == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), logTailTimeout)
	defer cancel()
	var out bytes.Buffer
	lines := int64(status.MaxTerminationLogLines)
	err = logs.Read(ctx, logs.Output{Stdout: &out, Stderr: &out}, logs.File{Root: root, Path: path}, logs.Options{Tail: &lines}, logs.Deps{Log: a.log})
	if err != nil {
		a.log.Debug("end of the log not read for the termination message", "pod", pod.Namespace+"/"+pod.Name, "container", c.Name(), "err", err)
	}
	return out.Bytes()
}
