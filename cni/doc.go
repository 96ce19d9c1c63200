// Package cni attaches pods to their network by CNI plugins.
//
// Purpose: [Network] finds the node's network configuration and runs the configuration's plugins
// through libcni: ADD when a sandbox is made ([Network.Add]), CHECK, DEL when the sandbox ends
// ([Network.Del]), GC for what nobody deleted ([Network.GC]), and STATUS ([Network.Status]).
//
// The first file by name in the directory of configurations decides (*.conflist, *.conf, *.json).
// It is read at each use, so a change takes effect with the next sandbox. If that file is broken,
// the network is not ready: the next file is not taken instead, because pods would silently get
// another network.
//
// Truth owned: which sandboxes are attached, or may be attached. A record on the disk
// (attachments/) is written before the first plugin runs, and removed after the last DEL has
// succeeded. The record has the configuration of that moment, so that DEL undoes what ADD did, also
// if the configuration has changed since. libcni keeps the results of ADD beside the records
// (results/).
//
// Concurrency: a [Network] is safe for concurrent use, but calls for one sandbox must not overlap.
// GC waits for running calls before it looks what is stale. Later calls run beside its DELs, except
// for the sandbox that is being detached, and wait while the plugins run their GC. No goroutine
// outlives its call.
package cni
