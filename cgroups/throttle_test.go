package cgroups

import (
	"fmt"
	"os"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// The kernel slows a container down between its request and its limit, in whole pages. The figures
// are the kubelet's.
func TestThrottle(t *testing.T) {
	page := int64(os.Getpagesize())
	pages := func(n int64) string { return strconv.FormatInt(n*page, 10) }
	for _, c := range []struct {
		name           string
		request, limit int64 // in pages
		factor         float64
		high           string
	}{
		{"between request and limit", 100, 200, 0.9, pages(190)},
		{"rounded down to a page", 100, 201, 0.5, pages(150)},
		{"the factor 1 is the limit", 100, 200, 1, pages(200)},
		{"no request", 0, 100, 0.9, pages(90)},
		{"no limit: what all pods may have", 100, 0, 0.9, pages(910)},
		{"Guaranteed", 100, 100, 0.9, ""},
		{"BestEffort", 0, 0, 0.9, ""},
		{"more than all pods may have", 2000, 0, 0.9, ""},
		{"less than a page above the request", 100, 101, 0.9, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			list := func(n int64) corev1.ResourceList {
				if n == 0 {
					return nil
				}
				return corev1.ResourceList{corev1.ResourceMemory: *resource.NewQuantity(n*page, resource.BinarySI)}
			}
			container := corev1.Container{
				Resources: corev1.ResourceRequirements{Requests: list(c.request), Limits: list(c.limit)},
			}
			pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{container}}}
			o := Options{Version: V2, Throttle: &Throttle{Factor: c.factor, Allocatable: 1000 * page}}
			got := ContainerResources(pod, &container, 1<<40, o).Unified
			if got["memory.high"] != c.high || got["memory.min"] != "0" || got["memory.low"] != "0" ||
				got["memory.oom.group"] != "1" {
				t.Errorf("%v, want memory.high %q", got, c.high)
			}
		})
	}
}

// Cgroup v1 cannot slow a container down, and nothing does so unless it is asked for.
func TestNoThrottle(t *testing.T) {
	container := corev1.Container{Resources: corev1.ResourceRequirements{
		Limits: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Gi")},
	}}
	for _, o := range []Options{{Version: V1, Throttle: &Throttle{Factor: 0.9}}, {Version: V2}} {
		got := ContainerResources(&corev1.Pod{}, &container, 1<<40, o).Unified
		if fmt.Sprint(got["memory.high"], got["memory.min"]) != "" {
			t.Errorf("version %s: %v", o.Version, got)
		}
	}
}
