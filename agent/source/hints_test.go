package source

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// What the machine can never run is accepted with a warning, for it may be meant for another one.
func TestHints(t *testing.T) {
	machine := v1.ResourceList{v1.ResourceCPU: resource.MustParse("2"), v1.ResourceMemory: resource.MustParse("1Gi")}
	for name, c := range map[string]struct {
		old, new string
		want     string
	}{
		"a pod that fits": {"image: i", "image: i\n    resources: {requests: {cpu: 2, memory: 1Gi}}", ""},
		"more cpu": {
			"image: i", "image: i\n    resources: {requests: {cpu: 2001m}}",
			"line 5: spec: the pod will fail on this machine: OutOfcpu: Node didn't have enough resource: cpu, " +
				"requested: 2001, used: 0, capacity: 2000",
		},
		"a limit is a request": {
			"image: i", "image: i\n    resources: {limits: {memory: 2Gi}}",
			"line 5: spec: the pod will fail on this machine: OutOfmemory: Node didn't have enough resource: memory",
		},
		"huge pages": {
			"image: i", "image: i\n    resources: {requests: {cpu: 1}, limits: {hugepages-2Mi: 2Mi}}",
			"line 5: spec: the pod will fail on this machine: OutOfhugepages-2Mi: Node didn't have enough resource: " +
				"hugepages-2Mi, requested: 2097152",
		},
		"windows": {
			"spec:", "spec:\n  os: {name: windows}", "line 6: spec.os.name: the pod will fail: this node runs linux",
		},
		"linux": {"spec:", "spec:\n  os: {name: linux}", ""},
		"a label": {
			"name: a", "name: a\n  labels: {kubernetes.io/os: windows}",
			"line 5: metadata.labels[kubernetes.io/os]: the pod will fail: this node runs linux",
		},
		"another node": {
			"spec:", "spec:\n  nodeName: other",
			"line 6: spec.nodeName: has no effect: a pod of a manifest runs on the node that reads it, here n",
		},
		"this node":             {"spec:", "spec:\n  nodeName: 'n'", ""},
		"storage is not looked": {"image: i", "image: i\n    resources: {requests: {ephemeral-storage: 1Ei}}", ""},
	} {
		t.Run(name, func(t *testing.T) {
			items := Decoder{NodeName: "n", Capacity: machine}.Decode("f",
				[]byte(strings.Replace(goodPod, c.old, c.new, 1)))
			if len(items) != 1 || !items[0].Result.Accepted {
				t.Fatalf("%+v", items)
			}
			if got := strings.Join(items[0].Result.Warnings, "; "); !strings.HasPrefix(got, c.want) ||
				(got == "") != (c.want == "") {
				t.Errorf("got %q", got)
			}
		})
	}
	big := strings.Replace(goodPod, "image: i", "image: i\n    resources: {requests: {cpu: 9k}}", 1)
	if items := (Decoder{NodeName: "n"}).Decode("f", []byte(big)); len(items[0].Result.Warnings) != 0 {
		t.Errorf("of a machine that is not known: %q", items[0].Result.Warnings)
	}
}
