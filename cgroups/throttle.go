package cgroups

import (
	"maps"
	"math"
	"os"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Throttle says from when on the kernel slows a container down that uses much memory (KEP-2570).
type Throttle struct {
	// Factor is where that is between the request (0) and the limit (1): memoryThrottlingFactor.
	Factor float64
	// Allocatable is the limit of containers that have none: what all pods together may have, in
	// bytes.
	Allocatable int64
}

// throttle sets the memory from which on the kernel slows the container down (memory.high). A
// container whose request is its limit is not slowed down. No memory is protected from reclaim
// (memory.min, memory.low): a kubelet sets both to 0, too, under memoryReservationPolicy None.
func throttle(r *runtimeapi.LinuxContainerResources, container *corev1.Container, o Options) {
	if o.Throttle == nil || o.Version != V2 {
		return
	}
	unified := map[string]string{"memory.min": "0", "memory.low": "0"}
	request, limit := container.Resources.Requests.Memory().Value(), container.Resources.Limits.Memory().Value()
	if request != limit {
		if high := o.Throttle.high(request, limit); high > request {
			unified["memory.high"] = strconv.FormatInt(high, 10)
		}
	}
	if r.Unified == nil {
		r.Unified = map[string]string{}
	}
	maps.Copy(r.Unified, unified)
}

// high returns where the kernel begins to slow a container down, in whole pages.
func (t *Throttle) high(request, limit int64) int64 {
	if limit == 0 {
		limit = t.Allocatable
	}
	page := int64(os.Getpagesize())
	bytes := math.Floor(float64(request) + (float64(limit)-float64(request))*t.Factor)
	return int64(bytes/float64(page)) * page
}
