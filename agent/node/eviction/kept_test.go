package eviction

import (
	"fmt"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Hard eviction keeps the amounts of its thresholds free, and nothing where they are switched off.
func TestKept(t *testing.T) {
	capacity := v1.ResourceList{
		v1.ResourceMemory: resource.MustParse("8Gi"), v1.ResourceEphemeralStorage: resource.MustParse("100Gi"),
	}
	for _, c := range []struct {
		memory, nodefs string
		want           string
	}{
		{"100Mi", "10%", "104857600 10737418400"},
		{"50%", "1Gi", "4294967296 1073741824"},
		{"0%", "100%", "0 0"},
		{"100%", "0%", "0 0"},
		{"x%", "y", "0 0"},
	} {
		got := Kept(map[string]string{
			"memory.available": c.memory, "nodefs.available": c.nodefs, "imagefs.available": "15%",
		}, capacity)
		if text := fmt.Sprint(got.Memory().Value(), got.StorageEphemeral().Value()); text != c.want || len(got) > 2 {
			t.Errorf("%s, %s: %s, want %s", c.memory, c.nodefs, text, c.want)
		}
	}
	if got := Kept(nil, capacity); len(got) != 0 {
		t.Errorf("without thresholds: %v", got)
	}
}
