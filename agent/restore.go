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
	"github.com/berthd/berth/agent/steps"
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
	a.restored = map[string][]*v1.Pod{}
	for uid, rec := range records {
		if rec.File != "" {
			a.restored[rec.File] = append(a.restored[rec.File], rec.Pod)
		}
		st := a.pods.state(uid)
		st.record = rec
		a.probes.Restore(uid, rec.Probes)
		if rec.Status != nil {
			a.status.Set(rec.Pod, *rec.Status)
		}
		if rec.Admitted {
			a.admitted.add(uid)
		}
		phase := worker.Running
		if rec.Ended {
			phase = worker.Terminated
		}
		a.workers.Adopt(rec.Pod, phase)
	}
	for uid, l := range listed {
		if _, known := records[uid]; !known {
			a.adopt(uid, l)
		}
	}
	a.log.Info("pods of an earlier run taken over", "checkpointed", len(records), "listed", len(listed))
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
		if !sleep(ctx, wait) {
			return nil, fmt.Errorf("waiting for the runtime: %w", context.Cause(ctx))
		}
	}
}

// adopt makes a worker for a pod that only the runtime knows. One whose sandbox names another root directory, or none and that has no directory
// beneath ours (a kubelet's with our root directory has), was made by somebody else on the same runtime: it is left alone.
func (a *Agent) adopt(uid podUID, l *observe.Listed) {
	if l.Name == "" || !a.ours(uid, l.Annotations) {
		if l.Name != "" && a.foreign.add(uid) {
			a.log.Warn("pod in the runtime is not of this root directory and is left alone", "pod", l.Namespace+"/"+l.Name, "uid", uid, "rootDir", a.cfg.RootDir)
		}
		return
	}
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{
		UID: uid, Namespace: l.Namespace, Name: l.Name, Labels: podLabels(l.Labels), Annotations: maps.Clone(l.Annotations),
	}}
	delete(pod.Annotations, steps.AnnotationRootDir)
	pod.Spec.TerminationGracePeriodSeconds = ptr.To(l.GraceSeconds)
	a.workers.Adopt(pod, worker.Running)
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

// sleep waits for d and reports whether ctx lasted.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
