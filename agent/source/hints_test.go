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
			items := Decoder{NodeName: "n", Allocatable: machine}.Decode("f",
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

// TestLineOfWarning checks that a warning's line is found where there is one.
func TestLineOfWarning(t *testing.T) {
	for warning, want := range map[string]struct {
		line int
		text string
	}{
		"line 12: unknown field": {12, "unknown field"},
		"line 0: unknown field":  {0, "line 0: unknown field"},
		"line x: unknown":        {0, "line x: unknown"},
		"unknown field line 3: ": {0, "unknown field line 3: "},
		atLine(0, "unknown"):     {0, "unknown"},
		atLine(7, "line 8: x"):   {7, "line 8: x"},
	} {
		if line, text := LineOfWarning(warning); line != want.line || text != want.text {
			t.Errorf("%q: %d %q", warning, line, text)
		}
	}
}

// TestTooLargeObject checks that the error of an object that is too large as a whole names a field.
func TestTooLargeObject(t *testing.T) {
	for _, kind := range []string{"ConfigMap", "Secret"} {
		value := strings.Repeat("eHh4", 350_000)
		items := Decoder{NodeName: "n"}.Decode("m.yaml",
			[]byte("{apiVersion: v1, kind: "+kind+", metadata: {name: big}, data: {k: "+value+"}}"))
		if v := items[0].Result; v.Accepted || v.Field != "data" || !strings.HasPrefix(v.Message, "data: Too long") {
			t.Errorf("%s: field %q, %.80q", kind, v.Field, v.Message)
		}
	}
}
