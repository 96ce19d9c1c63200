// Package store reads and fills containerd's stores of images and content, in the namespace of the
// caller's context.
//
// Purpose: what the images of containerd's CRI plugin (cri/containerd) and those of the native
// runtime (cri/native) have in common: importing archives ([Import]), and the progress of pulls
// ([PullProgress]).
//
// Truth owned: none; containerd has the images. Concurrency: every function may be called from any
// goroutine.
package store
