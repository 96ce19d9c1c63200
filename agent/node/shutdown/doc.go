// Package shutdown lets the node's pods end in order before the machine does.
//
// Purpose: a kubelet's graceful node shutdown (KEP-2000, KEP-2712). [Manager] takes a delay lock of
// systemd-logind, so that logind tells of a shutdown before it begins and waits for the pods. It
// ends the pods when logind announces a shutdown, or when systemd stops the agent because the
// machine shuts down. It lets them run again if the shutdown is cancelled. Package drain decides
// the order of the pods, and stops them.
//
//	        logind announces, or systemd stops the agent
//	running ───────────────────────────────────────────▶ shutting down
//	   ▲                  logind cancels                      │
//	   └──────────────────────────────────────────────────────┘
//
// Truth owned: when the last shutdown began and ended, in a file that outlives the boot. Whether
// pods may run is drain's truth.
//
// Concurrency: a [Manager]'s Run is called once. Its Shutdown is safe for concurrent use.
package shutdown
