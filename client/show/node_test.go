package show

import (
	"bytes"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	"k8s.io/utils/ptr"

	"github.com/berthd/berth/client/api"
)

func TestNodeResources(t *testing.T) {
	list := func(cpu, memory, pods string) v1.ResourceList {
		return v1.ResourceList{
			v1.ResourceCPU: resource.MustParse(cpu), v1.ResourceMemory: resource.MustParse(memory),
			v1.ResourcePods: resource.MustParse(pods),
		}
	}
	r := &api.Resources{
		Capacity: list("4", "8Gi", "110"), Allocatable: list("3500m", "7Gi", "110"), Requested: list("4200m", "3584Mi", "11"),
	}
	r.Capacity["hugepages-2Mi"], r.Capacity["example.com/dongle"] = resource.MustParse("0"), resource.MustParse("2")
	r.Allocatable["example.com/dongle"] = resource.MustParse("2")
	node := &statsapi.NodeStats{
		CPU:    &statsapi.CPUStats{UsageNanoCores: ptr.To(uint64(1_000_000_000))},
		Memory: &statsapi.MemoryStats{WorkingSetBytes: ptr.To(uint64(6 << 30))},
	}
	for bars, want := range map[bool]string{
		false: `RESOURCE             CAPACITY   ALLOCATABLE   REQUESTED      USED
cpu                  4000m      3500m         4200m (120%)   1000m (25%)
memory               8192Mi     7168Mi        3584Mi (50%)   6144Mi (75%)
pods                 110        110           11 (10%)       -
example.com/dongle   2          2             0 (0%)         -
hugepages-2Mi        0Mi        0Mi           0Mi            -
`,
		true: `RESOURCE             CAPACITY   ALLOCATABLE   REQUESTED                   USED
cpu                  4000m      3500m         [##########] 4200m (120%)   [##........] 1000m (25%)
memory               8192Mi     7168Mi        [#####.....] 3584Mi (50%)   [#######...] 6144Mi (75%)
pods                 110        110           [#.........] 11 (10%)       -
example.com/dongle   2          2             [..........] 0 (0%)         -
hugepages-2Mi        0Mi        0Mi           0Mi                         -
`,
	} {
		var out bytes.Buffer
		if err := NodeResources(r, node, bars).Write(&out); err != nil {
			t.Fatal(err)
		}
		if got := out.String(); got != want {
			t.Errorf("bars %t:\n%s\nwant\n%s", bars, got, want)
		}
	}
}
