// Package store runs etcd inside the process of the bundled API server, and saves and restores its
// content.
//
// Purpose: [Start] runs an etcd of one member on a unix socket in a folder that only its owner may
// enter: nothing listens on the network, and no client needs a certificate. etcd acknowledges a
// write after it is on the disk (fsync), as a separate etcd does. This process uses it by function
// calls ([Store.Client]), other programs by the socket. [Save] writes a snapshot of a running
// store, [Restore] makes the folder of a store from a snapshot. A snapshot has etcd's own format:
// etcdutl reads it, and a separate etcd can be made from it. [Defragment] makes the file of a
// running store smaller.
//
// Truth owned: the content of the API, below the data directory's folder etcd.
//
// Concurrency: one [Store] per folder; [Lock] keeps a second process away. Wait and Close may be
// called once each, everything else from any goroutine.
package store
