// Package stats tells what the node, its pods and their containers use, in the kubelet's forms: the summary of /stats/summary, and the metrics of
// /metrics/resource and /metrics/cadvisor.
//
// Purpose: everything is read when somebody asks, straight from cgroups, /proc and the file systems: nothing is polled, and no shim is woken unless the
// whole summary is asked for, which has the size of the containers' writable layers.
//
// Truth owned: none but the last readings, from which rates of use are computed, and the sizes of volumes, which are counted once a minute at most.
//
// Concurrency: a [Collector] is safe for concurrent use; one reading at a time.
package stats
