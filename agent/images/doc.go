// Package images has the images that containers need: it looks them up, pulls them beside the pods' workers, and imports the archives that
// lie in a directory of the node.
//
// Purpose: [Manager.Ensure] answers at once whether a container's image is there and, where it is not, what it waits for, with the reasons and
// messages that a kubelet shows. One pull serves every pod that waits for the image; as many pulls run at once as the config says, the
// most important pod's first, then fairly between registries. A pull that ends wakes the pods that wait for it.
//
// Truth owned: which pulls are queued and under way, which pod has to hold off from which image until when, which container has
// pulled its image for which attempt, and which archives were imported. Which images exist is the runtime's truth; it is asked each time.
//
//	                      Ensure               a place is free              the runtime answers
//	(image is missing) ─────────────▶ Queued ─────────────────▶ Pulling ──────────────────────┬─▶ done: every waiter is woken
//	        ▲                            │                         │ StallTimeout             │
//	        │ 10 s, 20 s … 300 s         │ nobody waits            ▼                          └─▶ failed: every waiter backs off
//	        └──── BackOff ◀──────┐       ▼ any more             Stalled (gives its place up)            │
//	                             │    dropped                                                           │
//	                             └──────────────────────────────────────────────────────────────────────┘
//
// Concurrency: every method may be called from any goroutine. Pulls and imports run in goroutines that [Manager.Run] owns and joins. Events and Wake are
// called without a lock held.
package images
