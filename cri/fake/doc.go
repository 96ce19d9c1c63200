// Package fake is a container runtime in memory: [cri.Runtime] with the semantics of containerd's CRI plugin, and with means
// to make it fail.
//
// Purpose: tests and scenarios of whole pod lives, fast and deterministic. Sandboxes and containers have the states, names,
// reservations, timestamps, exit codes, reasons and events that containerd gives them; what a container does is scripted
// ([Behavior], [Runtime.Script]) or read from its command, of which a little shell is understood. [Runtime.Inject] plants
// faults before or after a call takes effect, [Runtime.Calls] is the journal of calls, and [Runtime.CheckInvariants] tells
// which of the promises that the agent makes were ever broken, even if only for a moment.
//
// Truth owned: the fake node's sandboxes, containers, images and addresses.
//
// Time is package time's: inside a testing/synctest bubble everything waits in fake time, and then [New] must be called inside
// the bubble, too. The fake starts no goroutine but the ones that end a container or a stream at its time.
//
// Concurrency: everything is safe for concurrent use. Callbacks (Fault.Match, Config.Script) are called with no lock held, except where
// their documentation says so.
//
// A [Runtime] is one agent's connection to the node. To kill the agent as kill -9 does, [Runtime.Sever] the connection and
// give the next agent one of its own by [Runtime.Connect]:
//
//	rt.Inject(fake.Fault{Method: "CreateContainer", After: true, Crash: func() { rt.Sever(); stopAgent() }})
package fake
