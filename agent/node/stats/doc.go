// Package stats measures what the node, its pods and their containers use. The results have the
// kubelet's forms: the summary of /stats/summary, and the metrics of /metrics/resource and
// /metrics/cadvisor.
//
// Purpose: a request reads cgroups, /proc and the file systems; nothing is polled. No shim is
// called unless the whole summary is requested, which has the sizes of the containers' writable
// layers.
//
// Truth owned: the last readings, from which rates are computed, and the sizes of volumes, which
// are measured at most once a minute.
//
// Concurrency: a [Collector] is safe for concurrent use. It makes one reading at a time.
package stats
