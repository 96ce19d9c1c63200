// Package logs keeps container logs small: it rotates, compresses and removes them before they take more of the disk than they may.
//
// Purpose: what the kubelet does with containerLogMaxSize, containerLogMaxFiles, containerLogMaxWorkers and containerLogMonitorInterval, with two bounds
// more: on all log files of a container together, those of its earlier instances included, and on the logs of all pods together. A container that writes fast is
// looked at as often as it has to be, one that does not write costs nothing:
//
//	            the kernel tells of a write
//	resting ───────────────────────────────▶ writing ──┐ looked at again before it can have
//	   ▲                                        │  ▲    │ filled the room that is left
//	   └────────────────────────────────────────┘  └────┘
//	            nothing was written meanwhile
//
// A log that is full is renamed to N.log.YYYYMMDD-HHMMSS, and the runtime is asked to reopen it. Should the runtime not, the renaming is taken back, and
// nothing is lost: the runtime writes to the same file all the while. What is found after a crash in between (a running container whose log's name leads nowhere) is
// reopened. Of the rotated files all but the newest are compressed when the container does not write too fast for that.
//
// Truth owned: how much the logs take. It is read from the directories; nothing is kept over a restart.
//
// Concurrency: [Manager.Track] and [Manager.Forget] may be called by any goroutine and never wait. One goroutine, [Manager.Run]'s, owns all state; what
// lasts (asking the runtime, compressing) is done in jobs beside it, one at a time for each container, which Run joins.
package logs
