// Package stats measures what the node, its pods and their containers use. The results have the
// kubelet's forms: the summary of /stats/summary, and the metrics of /metrics/resource and
// /metrics/cadvisor.
//
// Purpose: a request reads cgroups, /proc and the file systems; nothing is polled. What may hang or
// take long (the runtime, a volume of a network, a driver, a block device, a directory or process
// with a million files) is measured beside the requests: a request waits for it for a short time,
// and takes the last value then. What a pod's files take to count has a budget. No shim is
// called unless the whole summary is requested, which has the sizes of the containers' writable
// layers.
//
// Truth owned: the last readings, from which rates are computed, and the sizes of volumes, which
// are measured at most once a minute.
//
// Concurrency: a [Collector] is safe for concurrent use. It makes one reading of cgroups at a time,
// and waits for no measurement meanwhile. Each measurement has a goroutine of its own, which ends
// with it.
package stats
