package agent

import (
	"context"
	"fmt"
	"maps"
	"os"
	"time"

	"github.com/containerd/errdefs"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/berthd/berth/agent/observe"
	"github.com/berthd/berth/agent/plan"
	"github.com/berthd/berth/agent/steps"
	"github.com/berthd/berth/agent/tasks"
	"github.com/berthd/berth/agent/timeline"
	"github.com/berthd/berth/agent/worker"
	"github.com/berthd/berth/cri"
)

// restore makes workers for the pods that an earlier run of the agent, or a kubelet with the same root directory, left: those that the checkpoint
// knows, then those that only the runtime knows. It waits for the runtime to answer.
func (a *Agent) restore(ctx context.Context) error {
	records, err := a.checkpoint.Load()
	if err != nil {
		a.log.Warn("checkpoints that cannot be read are left aside", "err", err)
	}
	listed, err := a.firstList(ctx)
	if err != nil {
		return err
	}
	a.restored, a.begun = map[string][]*v1.Pod{}, time.Now()
	files := map[podUID]string{}
	a.admission.Lock() // a restored pod's first pass may ask for room before the others are known
	for uid, rec := range records {
		if rec.File != "" {
			a.restored[rec.File] = append(a.restored[rec.File], rec.Pod)
			files[uid] = rec.File
		}
		if !a.gate.held() && revive(rec) {
			a.log.Info("pod that a shutdown or a drain ended is started again", "pod", rec.Pod.Namespace+"/"+rec.Pod.Name, "uid", uid)
		}
		st := a.pods.state(uid)
		st.record = rec
		a.probes.Restore(uid, rec.Probes)
		if rec.Status != nil {
			if a.status.Restore(rec.Pod, *rec.Status); rec.Ended {
				a.status.End(uid)
			}
		}
		if rec.Admitted {
			a.admitted.add(uid)
		}
		if r := rec.Rejected; r != nil {
			a.timeline.Add(uid, timeline.Entry{
				Step: steps.Admit{}.Name(), Begin: time.Now(), End: time.Now(), Outcome: timeline.Failed,
				Message: (&steps.Rejection{Reason: r.Reason, Message: r.Message, Detail: r.Detail}).Error(),
			})
		}
		a.ephemerals.set(uid, rec.Ephemeral)
		if rec.Resize != nil {
			a.allocations.set(uid, rec.Resize.Allocated.On(a.ephemerals.with(rec.Pod)))
		}
		a.trackLogs(rec.Pod, &plan.Observed{}) // its pass tells more, but one that has ended has none
		a.workers.Adopt(rec.Pod, rec.Resume(time.Now()))
	}
	a.admission.Unlock()
	a.files.Store(&files)
	found, foreign := 0, 0
	for uid, l := range listed {
		if _, known := records[uid]; known {
			continue
		}
		if a.adopt(uid, l) {
			found++
		} else {
			foreign++
		}
	}
	a.log.Info("pods of an earlier run taken over", "checkpointed", len(records), "found", found, "foreign", foreign)
	return nil
}

// firstList lists the runtime's pods, waiting as long as the runtime does not answer.
func (a *Agent) firstList(ctx context.Context) (map[podUID]*observe.Listed, error) {
	said := false
	for wait := 50 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		listed, err := a.observer.Relist(ctx)
		if err == nil {
			return listed, nil
		}
		if ctx.Err() != nil {
			return nil, fmt.Errorf("waiting for the runtime: %w", context.Cause(ctx))
		}
		if !said {
			said = true
			a.log.Warn("the container runtime does not answer; waiting for it",
				"endpoint", a.cfg.Kubelet.ContainerRuntimeEndpoint, "unavailable", errdefs.IsUnavailable(err), "err", err)
		}
		if !tasks.Sleep(ctx, wait) {
			return nil, fmt.Errorf("waiting for the runtime: %w", context.Cause(ctx))
		}
	}
}

// adopt makes a worker for a pod that only the runtime knows. One whose sandbox names another root directory, or none and that has no directory
// beneath ours (a kubelet's with our root directory has), was made by somebody else on the same runtime: it is left alone, which adopt reports as false.
func (a *Agent) adopt(uid podUID, l *observe.Listed) bool {
	if l.Name == "" || !a.ours(uid, l.Annotations) {
		if l.Name != "" && a.foreign.add(uid) {
			a.log.Warn("pod in the runtime is not of this root directory and is left alone", "pod", l.Namespace+"/"+l.Name, "uid", uid, "rootDir", a.cfg.RootDir)
		}
		return false
	}
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{
		UID: uid, Namespace: l.Namespace, Name: l.Name, Labels: podLabels(l.Labels), Annotations: maps.Clone(l.Annotations),
	}}
	delete(pod.Annotations, steps.AnnotationRootDir)
	pod.Spec.TerminationGracePeriodSeconds = ptr.To(l.GraceSeconds)
	a.workers.Adopt(pod, worker.State{})
	return true
}

// ours reports whether the pod is of our root directory.
func (a *Agent) ours(uid podUID, annotations map[string]string) bool {
	if root := annotations[steps.AnnotationRootDir]; root != "" {
		return root == a.cfg.RootDir
	}
	_, err := os.Stat(a.volumes.PodDir(uid))
	return err == nil
}

// podLabels returns a sandbox's labels without those that name the pod.
func podLabels(labels map[string]string) map[string]string {
	out := map[string]string{}
	for k, v := range labels {
		switch k {
		case cri.LabelPodName, cri.LabelPodNamespace, cri.LabelPodUID, cri.LabelContainerName:
		default:
			out[k] = v
		}
	}
	return out
}
