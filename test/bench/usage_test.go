package main

import (
	"maps"
	"testing"
)

// TestReadAnswers reads what agents answer, with a pod of which the agent knows nothing yet.
func TestReadAnswers(t *testing.T) {
	want := map[who]usage{{pod: "a"}: {0.25, 4096}, {"a", "main"}: {0.125, 2048}}
	for name, read := range map[string]func() (map[who]usage, error){
		"summary": func() (map[who]usage, error) {
			return readSummary([]byte(`{"pods": [{"podRef": {"name": "b"}}, {"podRef": {"name": "a"},
				"cpu": {"usageCoreNanoSeconds": 250000000}, "memory": {"workingSetBytes": 4096}, "containers": [{"name": "main",
				"cpu": {"usageCoreNanoSeconds": 125000000}, "memory": {"workingSetBytes": 2048}}]}]}`))
		},
		"resource": func() (map[who]usage, error) {
			return readResource([]byte(`# TYPE container_cpu_usage_seconds_total counter
container_cpu_usage_seconds_total{container="main",namespace="default",pod="a"} 0.125 1700000000000
# TYPE container_memory_working_set_bytes gauge
container_memory_working_set_bytes{container="main",namespace="default",pod="a"} 2048 1700000000000
# TYPE pod_cpu_usage_seconds_total counter
pod_cpu_usage_seconds_total{namespace="default",pod="a"} 0.25 1700000000000
# TYPE pod_memory_working_set_bytes gauge
pod_memory_working_set_bytes{namespace="default",pod="a"} 4096 1700000000000
`))
		},
	} {
		if got, err := read(); err != nil || !maps.Equal(got, want) {
			t.Errorf("%s: %v, %v; want %v", name, got, err, want)
		}
	}
}

// TestApart: a figure that is between what was there before and after is exact, and a figure that
// is missing is off by all of it.
func TestApart(t *testing.T) {
	for _, c := range []struct{ v, before, after, want float64 }{
		{100, 100, 100, 0},
		{105, 100, 110, 0},
		{105, 110, 100, 0},
		{75, 100, 100, 0.25},
		{150, 100, 100, 0.5},
		{0, 100, 100, 1},
		{0, 0, 0, 0},
	} {
		if got := apart(c.v, c.before, c.after); got != c.want {
			t.Errorf("%v between %v and %v is %v apart, want %v", c.v, c.before, c.after, got, c.want)
		}
	}
}
