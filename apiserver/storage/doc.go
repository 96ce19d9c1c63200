// Package storage gives the API's kinds their storage in the store of this process.
//
// Purpose: upstream's registries reach etcd by a connection for each kind. With etcd in the same
// process these cost memory for two ends each, timers, and most of the time of a read. [Direct] has
// upstream's storage, its watch caches and its compaction call the store's functions instead.
// [RemoveForgotten] tidies the content that no server would, before one starts.
//
// Truth owned: none; package store owns the content.
//
// Concurrency: a [Direct] is used by the goroutines that make the servers, and by those that end
// them; its methods may be called from any.
package storage
