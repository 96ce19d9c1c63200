package pod

import (
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	netutils "k8s.io/utils/net"
	"k8s.io/utils/ptr"

	"github.com/berthd/berth/agent/pod/plan"
	"github.com/berthd/berth/agent/pod/worker"
	"github.com/berthd/berth/internal/pods"
	"github.com/berthd/berth/status"
)

// reporter derives the statuses of pods and keeps them.
type reporter struct {
	cfg  Config
	deps *Deps
}

// derive computes the pod's status from the sync's observations, writes the checkpoint, and only
// then publishes the status: a crash must not forget a published status. If the checkpoint cannot
// be written, derive returns the error, and publishes the status all the same.
func (r *reporter) derive(s *podSync) error {
	d := r.deps
	derived, before := status.Derive(r.input(s)), s.Record.Status
	r.warnFamily(s.Pod, before, &derived)
	if s.Early && pods.Terminal(derived.Phase) {
		// a reader that waits for the pod's end also reads the reason and the termination messages,
		// so all of these come together
		return nil
	}
	if stop := s.work.Stop; stop.ComesBack(s.Pod) {
		derived.Reason, derived.Message = stop.Reason, stop.Message
	}
	s.Record.Status = &derived
	r.reportEnds(s.Pod, status.Ends(before, &derived))
	trackLogs(d.Node.Logs, r.cfg.PodLogsDir, s.Pod, &s.Observed)
	s.Record.Probes = d.Probes.Snapshot(s.Pod.UID)
	err := s.Save()
	if _, changed := d.Status.Set(s.Pod, derived); changed {
		r.measureStart(s.Pod, before, &derived)
		if at, ok := seen(s.Pod); ok && !pods.FromAPI(s.Pod) { // of others once the API server knows
			d.Metrics.PodStatus(s.Pod, &derived, at)
		}
	}
	return err
}

// warnFamily warns of a pod of a cluster whose status had an address of the node of another family:
// the agent and the cloud provider disagree which address is the node's.
func (r *reporter) warnFamily(pod *v1.Pod, before, after *v1.PodStatus) {
	if !r.deps.Cluster.Joined() || before == nil || before.HostIP == "" || after.HostIP == "" {
		return
	}
	was, is := netutils.IPFamilyOfString(before.HostIP), netutils.IPFamilyOfString(after.HostIP)
	if was != is {
		r.deps.Events.Pod(pod, "", v1.EventTypeWarning, "HostIPsIPFamilyMismatch", fmt.Sprintf("Kubelet detected an IPv%s "+
			"node IP (%s), but the cloud provider selected an IPv%s node IP (%s); pass an explicit `--node-ip` to kubelet to "+
			"fix this.", was, before.HostIP, is, after.HostIP))
	}
}

// reportEnds logs and counts the ends of containers.
func (r *reporter) reportEnds(pod *v1.Pod, ends []status.End) {
	for _, end := range ends {
		r.deps.Metrics.ContainerEnded(end.Kind, end.ExitCode, end.Reason)
		ran := time.Duration(0)
		if end.StartedAt.Unix() > 0 { // otherwise it could not be started
			ran = end.FinishedAt.Sub(end.StartedAt.Time)
		}
		r.deps.Log.Info("container ended", "pod", pods.FullName(pod), "container", end.Container,
			"exitCode", end.ExitCode, "reason", end.Reason, "ran", ran)
	}
}

// input gathers the input of a status.
func (r *reporter) input(s *podSync) status.Input {
	d, rec := r.deps, s.Record
	terminating := s.work.Phase != worker.Running
	in := status.Input{
		Pod:      s.Pod,
		Previous: rec.Status,
		Runtime: status.Runtime{
			RuntimeName: d.Runtime.State.Name(), RecursiveReadOnly: d.generate(s.Pod).Features.RecursiveReadOnly,
		},
		Sandbox:    s.Observed.Sandbox(),
		Earlier:    map[string]bool{},
		Waiting:    s.Waiting,
		Probes:     map[string]status.Probe{},
		Hooked:     rec.PostStart,
		Restarting: status.Restarting{Killed: rec.KilledToRestart},
		HostIPs:    d.Node.HostIPs(),
		Problem:    s.Problem,
		Allocated: status.Allocated{
			Resize: resizeStatus(s.Sync), Devices: d.Node.Allocation.Health(s.Pod),
			Claims: d.Node.Allocation.Claims.Holds(s.Pod.UID),
		},
		Terminating: terminating,
		Terminated:  s.work.Phase == worker.Terminating && s.res.Done,
		Now:         metav1.NewTime(time.Now()),

		TerminationMessages: r.terminationMessages(s),
	}
	for _, c := range s.Observed.Containers {
		in.Containers = append(in.Containers, c.ContainerStatus)
		in.Earlier[c.Id] = c.SandboxID != in.Sandbox.GetId()
	}
	for name, p := range d.Probes.Results(s.Pod.UID) {
		in.Probes[name] = status.Probe{ContainerID: p.ContainerID, Started: ptr.To(p.Started), Ready: ptr.To(p.Ready)}
	}
	if all := rec.RestartAll; all != nil {
		in.Removed = all.Removed
		in.RestartingAll = all.Cleaning && !terminating
	}
	in.RestartingAll = in.RestartingAll || !terminating && plan.AsksRestartAll(s.Pod, &s.Observed)
	if rejected := rec.Rejected; rejected != nil {
		in.Rejected = &status.Failure{Reason: rejected.Reason, Message: rejected.Message}
	}
	if stop := s.work.Stop; stop != nil && stop.Reason != "" && !stop.ComesBack(s.Pod) {
		in.Failed = &status.Failure{Reason: stop.Reason, Message: stop.Message, Yields: stop.Yields()}
		in.Failed.Disruption, in.Failed.Disrupted = stop.Disruption()
	}
	if s.Pod.Spec.HostNetwork {
		in.PodIPs = in.HostIPs
	}
	return in
}

// measureBegin measures the time from the first sight of a pod to its first sync, and begins to
// measure the pod's start.
func (r *reporter) measureBegin(pod *v1.Pod) {
	r.deps.Metrics.PodStarts(pod.UID)
	if seen, ok := seen(pod); ok {
		r.deps.Metrics.WorkerStarted(time.Since(seen))
	}
}

// seen returns when a pod was first seen.
func seen(pod *v1.Pod) (at time.Time, ok bool) {
	at, err := time.Parse(time.RFC3339Nano, pod.Annotations[pods.AnnotationSeen])
	return at, err == nil
}

// measureStart measures the time from the first sight of a pod to its phase Running.
func (r *reporter) measureStart(pod *v1.Pod, before, after *v1.PodStatus) {
	if after.Phase != v1.PodRunning || before == nil || before.Phase != v1.PodPending {
		return
	}
	if seen, ok := seen(pod); ok {
		r.deps.Metrics.PodStarted(time.Since(seen))
	}
}
