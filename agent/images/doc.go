// Package images has the images that containers need: it looks them up, pulls them beside the pods' workers, and imports the archives that
// lie in a directory of the node.
//
// Purpose: [Manager.Ensure] answers at once whether a container may use its image now and, where not, what it waits for, with the reasons and
// messages that a kubelet shows. One pull serves every pod that waits for the image with the same credentials; as many pulls run at once as the
// config says, the most important pod's first, then fairly between registries. A pull that ends wakes the pods that wait for it. An image that is there
// is only for those who could have pulled it, as far as the node's policy asks for that: package records.
//
// Truth owned: which pulls are queued and under way, which pod has to hold off from which image until when, which container has
// pulled its image for which attempt, and which archives were imported. Which images exist is the runtime's truth; it is asked each time.
//
//	                      Ensure               a place is free              the runtime answers
//	(image is missing) ─────────────▶ Queued ─────────────────▶ Pulling ──────────────────────┬─▶ done: every waiter is woken
//	        ▲                            │                         │ nothing comes for the    │
//	        │ 10 s, 20 s … 300 s         │ nobody waits            ▼ stall timeout            └─▶ failed: every waiter backs off
//	        ├──── BackOff ◀──────┐       ▼ any more             given up                                │
//	        │                    │    dropped                      │                                    │
//	        │ other credentials  └─────────────────────────────────┴────────────────────────────────────┘
//	        └ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ at once
//
// A pull that nothing comes of for a part of that time is Stalled: others have its place. Where a runtime cannot say how far a pull is, one that lasts longer than the
// stall timeout is, and goes on.
//
// Concurrency: every method may be called from any goroutine. Pulls and imports run in goroutines that [Manager.Run] owns and joins. Events and Wake are
// called without a lock held.
package images
