package server

import (
	"fmt"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// TestInventedMethods counts requests with methods that callers invent: they make no series of
// their own.
func TestInventedMethods(t *testing.T) {
	registry := prometheus.NewRegistry()
	c, err := newCounts(registry)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 100 {
		c.begin(fmt.Sprintf("INVENTED%d", i), "pods", false)()
	}
	c.begin("GET", "pods", false)()
	families, err := registry.Gather()
	if err != nil || len(families) != 3 {
		t.Fatalf("%v, %v", families, err)
	}
	for _, family := range families {
		var methods []string
		for _, m := range family.GetMetric() {
			for _, label := range m.GetLabel() {
				if label.GetName() == "method" {
					methods = append(methods, label.GetValue())
				}
			}
		}
		if fmt.Sprint(methods) != "[GET other]" {
			t.Errorf("%s has the methods %q", family.GetName(), methods)
		}
	}
}
