package agent

import (
	v1 "k8s.io/api/core/v1"

	"github.com/berthd/berth/agent/checkpoint"
	"github.com/berthd/berth/agent/steps"
	"github.com/berthd/berth/agent/worker"
	"github.com/berthd/berth/status"
)

// gone drops everything that was kept about a pod whose records are gone, but for what the one goes on from that comes next under its UID; it is the last thing that its
// worker does.
func (a *Agent) gone(uid podUID, next *v1.Pod) {
	last := a.pods.drop(uid)
	a.forgetLogs(uid)
	a.forgetResize(uid)
	if err := a.forget(uid, last, next); err != nil {
		a.log.Error("checkpoint of a pod that is gone not removed", "uid", uid, "err", err)
	}
	a.admitted.remove(uid)
	a.ephemerals.drop(uid)
	a.images.Forget(uid)
	a.probes.Stop(uid)
	if s, ok := a.status.Get(uid); ok {
		a.metrics.ForgetPod(s.Namespace, s.Name, uid)
	}
	a.observer.Forget(uid)
	a.status.Delete(uid)
	a.timeline.Forget(uid)
	a.staticChanged()
}

// forget removes a pod's checkpoint. The pod that comes next under its UID, as a static pod does whose manifest was taken away and put back while it ended, begins with what
// is remembered of its containers: to a kubelet, they restart. If the agent was started meanwhile, and nobody wanted it yet, it begins anew.
func (a *Agent) forget(uid podUID, last *checkpoint.Record, next *v1.Pod) error {
	if next == nil || last == nil || last.Status == nil {
		return a.checkpoint.Remove(uid)
	}
	rec := a.pods.state(uid).record
	rec.Pod, rec.Status = next, status.Again(last.Status)
	return a.saveRecord(rec)
}

// noteEnd writes down why the pod ends, and since when nobody wants it, before anything of it does: after a restart of the agent it must neither come
// back nor end for another reason, and nobody may have been told of another time. An error is told where the status is derived.
func (a *Agent) noteEnd(p *steps.Pass, work worker.Work) {
	rec := p.Record
	if rec.Stop == work.Stop && rec.Leaving.Equal(work.Leaving) && work.Recorded == work.Forget {
		return
	}
	if rec.Pod == nil {
		rec.Pod = p.Pod // known only from the runtime
	}
	rec.Stop, rec.Leaving = work.Stop, work.Leaving
	if err := p.Save(); err == nil && work.Forget {
		a.workers.Recorded(work.UID)
	}
}

// saveRecord writes a pod's checkpoint. A pod that is only known from the runtime has none.
func (a *Agent) saveRecord(rec *checkpoint.Record) error {
	if rec.Pod == nil {
		return nil
	}
	return a.checkpoint.Save(rec.Pod.UID, rec)
}

// admittedBeside returns the pods whose claims a new pod must respect: admitted, not ended, and not the new pod's own predecessor; apart those that stay, and those that
// are on their way out.
func (a *Agent) admittedBeside(pod *v1.Pod) (stay, leave []*v1.Pod) {
	for uid, e := range a.workers.List() {
		if uid == pod.UID || e.Waiting || e.Phase == worker.Terminated || placeholder(e.Pod) {
			continue
		}
		if s, ok := a.status.Get(uid); !a.admitted.has(uid) || ok && terminal(s.Status) {
			continue
		}
		if other := a.allocations.of(e.Pod); e.Phase == worker.Running {
			stay = append(stay, other)
		} else {
			leave = append(leave, other)
		}
	}
	return stay, leave
}

// saveAdmission checkpoints a verdict, and counts an admitted pod among those whose claims others must respect.
func (a *Agent) saveAdmission(rec *checkpoint.Record) error {
	if err := a.saveRecord(rec); err != nil {
		return err
	}
	if rec.Admitted {
		a.admitted.add(rec.Pod.UID)
	}
	return nil
}
