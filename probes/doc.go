// Package probes runs the liveness, readiness and startup probes of containers.
//
// Purpose: for every running container of a pod, the package knows whether the container is
// started, whether it is ready, and whether a failed probe requires that it is killed. Probes run
// by exec, httpGet, tcpSocket and grpc, with the kubelet's timing, thresholds, messages and events.
//
// Truth owned: the probe results of the running containers, which [Manager.Results] returns.
// Whether a container runs is the runtime's truth, which arrives through [Manager.Sync]. The caller
// decides what follows from a probe result.
//
// One run of one container (one container ID) has these states:
//
//	                 no startup probe
//	Sync(new ID) ──────────────────────────┐
//	     │ startup probe                   ▼       readiness probes, until the run ends:
//	     ▼               success      ┌─────────┐  Ready follows them
//	 not started ────────────────────▶│ started │
//	     │ failure                    └─────────┘  liveness probes, until one fails
//	     ▼                                 │ liveness failure
//	 Failed=Startup, on hold          Failed=Liveness, liveness on hold
//
// On hold means that the probe does not run again before Sync has a new container ID. A container
// without a readiness probe is ready as soon as it is started.
//
// Each part has its own files: health.go and threshold.go decide (pure: no I/O, no clock, no lock),
// schedule.go computes when a probe runs (pure), worker.go waits and probes, manager.go keeps the
// state of all pods, and the files of the actions (exec.go, http.go, tcp.go, grpc.go) perform one
// probe each.
//
// Concurrency: a [Manager] is safe for concurrent use. Each probe that is due now or later has one
// goroutine; a probe on hold has none. All goroutines are children of [Manager.Run] and have ended
// when Run returns. One mutex guards the state. It is never held across I/O, [Deps.OnChange] or
// [Deps.Events].
package probes
