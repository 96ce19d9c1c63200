package source

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestFieldsThatDoNotWork: the result names each field that has no effect or will be refused, with
// its line. To an agent such a pod is a pod, which it ends at its admission; to "berth validate" it
// is an error.
func TestFieldsThatDoNotWork(t *testing.T) {
	const manifest = `apiVersion: v1
kind: Pod
metadata:
  name: a
  annotations:
    seccomp.security.alpha.kubernetes.io/pod: unconfined
spec:
  schedulerName: mine
  containers:
  - name: c
    image: i
    resources:
      limits:
        example.com/gpu: 1
  volumes:
  - name: v
    cinder: {volumeID: x}
`
	want := []string{
		"line 6: metadata.annotations[seccomp.security.alpha.kubernetes.io/pod]: no effect: Kubernetes no longer reads",
		"line 17: spec.volumes[0].cinder: not supported, the pod will fail: Kubernetes moved this kind to a CSI driver",
		"line 8: spec.schedulerName: no effect: ",
	}
	items := Decoder{NodeName: "n"}.Decode("f", []byte(manifest))
	if len(items) != 1 || !items[0].Result.Accepted || items[0].Pod == nil {
		t.Fatalf("%+v", items)
	}
	check := func(got, want []string) {
		t.Helper()
		if len(got) != len(want) {
			t.Fatalf("the warnings are\n%s", strings.Join(got, "\n"))
		}
		for i := range want {
			if !strings.HasPrefix(got[i], want[i]) {
				t.Errorf("warning %q, want %q…", got[i], want[i])
			}
		}
	}
	check(items[0].Result.Warnings, want)

	file := filepath.Join(t.TempDir(), "a.yaml")
	put(t, file, manifest)
	results := Validate(Decoder{NodeName: "n"}, nil, file)
	if len(results) != 1 || results[0].Accepted || results[0].Field != "spec.volumes[0].cinder" ||
		results[0].Line != 17 ||
		!strings.HasPrefix(results[0].Message, "spec.volumes[0].cinder is not supported: ") {
		t.Fatalf("%+v", results)
	}
	// what is an error is not a warning, too
	check(results[0].Warnings, slices.Delete(slices.Clone(want), 1, 2))
	// What the API gives to every pod is nothing that its author asked for.
	if items := (Decoder{NodeName: "n"}).Decode("f", []byte(goodPod)); len(items) != 1 ||
		len(items[0].Result.Warnings) != 0 {
		t.Errorf("%+v", items)
	}
}
