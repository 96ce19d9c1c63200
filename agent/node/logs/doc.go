// Package logs keeps container logs small: it rotates, compresses and removes them before they take
// more of the disk than they may.
//
// Purpose: what the kubelet does with containerLogMaxSize, containerLogMaxFiles,
// containerLogMaxWorkers and containerLogMonitorInterval. berth adds two bounds: one for all log
// files of a container, with those of its earlier instances, and one for the logs of all pods. A
// container that writes fast is checked as often as necessary. A container that does not write
// costs nothing:
//
//	            the kernel reports a write
//	resting ───────────────────────────────▶ writing ──┐ checked again before the container can
//	   ▲                                        │  ▲    │ have filled the room that is left
//	   └────────────────────────────────────────┘  └────┘
//	            nothing was written since the last check
//
// A full log is renamed to N.log.YYYYMMDD-HHMMSS, and the runtime is asked to reopen the log. If
// the runtime does not reopen it, the manager takes the renaming back. Nothing is lost, because the
// runtime writes to the same file until it has reopened the log. After a crash between the two
// steps, a running container has a log path without a file: the manager has the log reopened. All
// rotated files except the newest are compressed, unless the container writes too fast.
//
// Truth owned: how much room the logs take. It is read from the directories; nothing is kept over a
// restart.
//
// Concurrency: any goroutine may call [Manager.Track] and [Manager.Forget]; they never wait. The
// goroutine of [Manager.Run] owns all state. Slow work (asking the runtime, compressing) runs in
// jobs, one at a time for each container. Run joins the jobs.
package logs
