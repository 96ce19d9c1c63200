package probes

import (
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/berthd/berth/internal/pods"
)

// The reasons of the events that probing records.
const (
	reasonUnhealthy    = "Unhealthy"
	reasonProbeWarning = "ProbeWarning"
)

// worker runs one probe of one run of a container, again and again, until it is cancelled: by Sync
// when the run has ended, or by its own report when the result is final.
type worker struct {
	m     *Manager
	state *podState
	run   *run
	kind  Kind
	spec  *v1.Probe

	cancel context.CancelFunc
	cost   cost
}

// startWorker starts the worker of a probe. The caller holds mu.
func (m *Manager) startWorker(state *podState, r *run, kind Kind) *worker {
	ctx, cancel := context.WithCancel(m.base)
	w := &worker{m: m, state: state, run: r, kind: kind, spec: kind.specOf(r.container), cancel: cancel}
	due := firstDue(w.spec, birth{
		now:            time.Now(),
		agentStart:     m.agentStart,
		containerStart: r.target.StartedAt,
		jitter:         m.jitter,
	})
	m.workers.Go(func() {
		defer cancel()
		w.loop(ctx, due)
	})
	return w
}

// loop probes at due and then every period.
func (w *worker) loop(ctx context.Context, due time.Time) {
	period := periodOf(w.spec)
	timer := time.NewTimer(time.Until(due))
	defer timer.Stop()
	for first := true; ; first = false {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		ready := w.probe(ctx)
		if ctx.Err() != nil {
			return
		}
		step := period
		if first && w.kind == Readiness && !ready {
			step = min(step, readinessRetry)
		}
		due = onGrid(nextDue(due, time.Now(), step))
		timer.Reset(time.Until(due))
	}
}

// probe runs the probe once, reports the result, and returns whether the container is ready now.
func (w *worker) probe(ctx context.Context) (ready bool) {
	m := w.m
	m.mu.Lock()
	pod, ip := w.state.pod, w.state.ip
	m.mu.Unlock()

	began := time.Now()
	r, err := m.prober.run(ctx, task{
		container:   w.run.container,
		containerID: w.run.target.ContainerID,
		podIP:       ip,
		spec:        w.spec,
	})
	took := time.Since(began)
	if ctx.Err() != nil {
		return false
	}
	message := ""
	switch {
	case err != nil:
		w.event(pod, reasonUnhealthy,
			fmt.Sprintf("%s probe errored and resulted in %s state: %v", w.kind, r.outcome, err))
		r.outcome = unknown
	case r.outcome == failure:
		message = fmt.Sprintf("%s probe failed: %s", w.kind, r.text)
		w.event(pod, reasonUnhealthy, message)
	case r.outcome == warning:
		w.event(pod, reasonProbeWarning, fmt.Sprintf("%s probe warning: %s", w.kind, r.text))
	}
	if w.spec.Exec != nil {
		if text := w.cost.note(w.kind, took, r.busy, periodOf(w.spec)); text != "" {
			w.event(pod, reasonProbeWarning, text)
		}
	}
	return w.report(pod, r, message, took)
}

// report adds the outcome to the container's health, unless the worker was stopped, and calls
// OnChange if the container's result changed. It returns whether the container is ready now.
func (w *worker) report(pod *v1.Pod, r reply, message string, took time.Duration) (ready bool) {
	m := w.m
	m.mu.Lock()
	if w.run.workers[w.kind] != w {
		m.mu.Unlock()
		return false
	}
	if m.deps.Observe != nil {
		m.deps.Observe(w.observation(pod, r.outcome, took, r.busy))
	}
	before := w.run.health.result()
	if r.outcome != unknown {
		w.run.health.observe(w.kind, r.outcome != failure, message)
	}
	after := w.run.health.result()
	m.reconcile(w.state, w.run)
	m.mu.Unlock()

	if before == after {
		return after.Ready
	}
	m.log.Info("Probe result changed", "pod", pods.FullName(pod), "container", w.run.container.Name,
		"containerID", after.ContainerID, "probe", string(w.kind), "started", after.Started, "ready", after.Ready,
		"failed", string(after.Failed))
	if m.deps.OnChange != nil {
		m.deps.OnChange(pod.UID)
	}
	return after.Ready
}

// event records a Warning about the container.
func (w *worker) event(pod *v1.Pod, reason, message string) {
	if w.m.deps.Events != nil {
		w.m.deps.Events(pod, w.run.container.Name, v1.EventTypeWarning, reason, message)
	}
}
