// Package images provides the images that containers need: it looks them up, pulls them in the
// background, and imports the archives in a directory of the node.
//
// Purpose: [Manager.Ensure] answers at once whether a container may use its image now. If it may
// not, the answer says what it waits for, with the reasons and messages of the kubelet. One pull
// serves every pod that waits for the image with the same credentials. As many pulls run at once as
// the config says: the most important pod's first, and then fairly between registries. The end of a
// pull wakes the pods that wait for it. An image that is on the node may be used only by pods that
// could have pulled it, as far as the node's policy demands that; see package records.
//
// Truth owned: which pulls are queued and under way, which pod is in back-off for which image until
// when, which container has pulled its image for which attempt, and which archives were imported.
// Which images exist is the runtime's truth; the runtime is asked each time.
//
//	                    Ensure        limits allow it     the runtime answers
//	(image is missing) ────────▶ Queued ────────▶ Pulling ────────────────┬─▶ done: waiting pods wake
//	        ▲                      │                 │ no data for the    │
//	        │ 10 s, 20 s … 300 s   │ no pod waits    ▼ stall timeout      └─▶ failed: pods back off
//	        ├──── BackOff ◀───┐    ▼ any more      ended                            │
//	        │                 │  dropped             │                              │
//	        │ other           └──────────────────────┴──────────────────────────────┘
//	        └ ─ ─ credentials: at once
//
// A pull without data for a part of the stall timeout is Stalled: it no longer counts for the
// limit, so that another pull may begin. If a runtime does not report progress, a pull that takes
// longer than the stall timeout is Stalled, and goes on.
//
// Concurrency: every method may be called from any goroutine. Pulls and imports run in goroutines
// that [Manager.Run] owns and joins. Wake is called without a lock held.
package images
