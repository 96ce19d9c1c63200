// Package probes runs the liveness, readiness and startup probes of containers and says what they mean.
//
// Purpose: for every running container of a pod, know whether it is started, whether it is ready, and whether a probe has
// condemned it. Probing is by exec, httpGet, tcpSocket and grpc, with the kubelet's timing, thresholds, messages and events.
//
// Truth owned: the probe verdicts of the running containers, which [Manager.Results] answers. Whether a container runs is the
// runtime's truth and arrives through [Manager.Sync]; what to do about a verdict is the caller's decision.
//
// One run of one container (one container ID) lives like this:
//
//	                 no startup probe
//	Sync(new ID) ──────────────────────────┐
//	     │ startup probe                   ▼         readiness probes, until the run ends: Ready follows them
//	     ▼               success      ┌─────────┐
//	 not started ────────────────────▶│ started │    liveness probes, until one fails
//	     │ failure                    └─────────┘
//	     ▼                                 │ liveness failure
//	 Failed=Startup, on hold          Failed=Liveness, liveness on hold
//
// On hold means that the probe is not run again before a new container ID is synced. Without a readiness probe a container is
// ready as soon as it is started.
//
// Parts, each in files of its own: health.go and machine.go decide (pure: no I/O, no clock, no lock), schedule.go says when
// (pure), worker.go waits and probes, manager.go keeps the books, and the action files (exec.go, http.go, tcp.go, grpc.go)
// perform one probe each.
//
// Concurrency: a [Manager] is safe for concurrent use. Each probe that is due now or later has one goroutine; a probe on hold has
// none. All of them are children of [Manager.Run] and have ended when it returns. One mutex guards the books and is never held
// across I/O, [Deps.OnChange] or [Deps.Events].
package probes
