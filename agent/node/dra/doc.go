// Package dra gives pods the devices of their resource claims (dynamic resource allocation).
//
// Purpose: the kubelet's side of the API for DRA drivers (k8s.io/kubelet/pkg/apis/dra, v1 and
// v1beta1). A driver registers as one of package plugins. The scheduler has chosen devices for a
// pod's ResourceClaims; [Manager.Prepare] has the devices' drivers prepare them before the pod's
// sandbox is made, and [Manager.CDIDevices] says which CDI devices a container gets. After all
// containers of the last pod of a claim have ended, [Manager.Unprepare] gives the devices back.
//
//	claim read ─▶ pod noted on the disk ─▶ drivers prepare it ─▶ prepared ─▶ last pod gone
//	                       │ failed                                              │
//	                       └─ again                    forgotten ◀─ drivers give it back
//
// The devices of a driver that is not there are taken from the cluster after a while, by deleting
// its ResourceSlices: else pods would be scheduled that wait for the driver.
//
// Truth owned: which drivers are registered, which pods have which claims, and what the drivers
// prepared for them. The last two are kept in the kubelet's own file and format (package state),
// which outlives both agents. A pod is noted before a driver is asked, so that no prepared claim is
// ever forgotten. A claim that an earlier agent prepared is prepared again for the next sandbox,
// because the machine may have started anew; drivers answer that as the first time.
//
// Concurrency: a [Manager] is safe for concurrent use. One operation at a time works on a claim. No
// lock is held while a driver is asked, and every request has a time limit, so that a driver that
// hangs holds up only the pods that have its devices.
package dra
