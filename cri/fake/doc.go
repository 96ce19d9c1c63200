// Package fake is a container runtime in memory. It implements [cri.Runtime] with the semantics of
// containerd's CRI plugin, and has means to make calls fail.
//
// Purpose: tests and scenarios of whole pod lives that are fast and deterministic. Sandboxes and
// containers have the states, names, reservations, timestamps, exit codes, reasons and events that
// containerd gives them. A container does what its script says ([Behavior], [Runtime.Script]), or
// else what its command says: the fake understands a little shell. [Runtime.Inject] adds faults
// before or after a call takes effect, [Runtime.Calls] is the journal of calls, and
// [Runtime.CheckInvariants] returns every violation of the agent's promises, even one that lasted
// only for a moment.
//
// Truth owned: the fake node's sandboxes, containers, images and addresses.
//
// Time is package time's. Inside a testing/synctest bubble everything waits in fake time; [New]
// must then be called inside the bubble. The only goroutines that the fake starts are those that
// end a container or a stream at its time.
//
// Concurrency: everything is safe for concurrent use. Callbacks (Fault.Match, Config.Script) are
// called without a lock, except where their documentation says otherwise.
//
// A [Runtime] is one agent's connection to the node. To kill the agent as kill -9 does, call
// [Runtime.Sever] and give the next agent a connection of its own with [Runtime.Connect]:
//
//	crash := func() { rt.Sever(); stopAgent() }
//	rt.Inject(fake.Fault{Method: "CreateContainer", After: true, Crash: crash})
package fake
