package source

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestFieldsThatDoNotWork: the verdict names each field that has no effect or will be refused, with
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
		"line 14: spec.containers[0].resources.limits[example.com/gpu]: no effect: there are no device plugins",
		"line 8: spec.schedulerName: no effect: ",
	}
	items := Decoder{NodeName: "n"}.Decode("f", []byte(manifest))
	if len(items) != 1 || !items[0].Verdict.Accepted || items[0].Pod == nil {
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
	check(items[0].Verdict.Warnings, want)

	file := filepath.Join(t.TempDir(), "a.yaml")
	put(t, file, manifest)
	verdicts := Validate(Decoder{NodeName: "n"}, nil, file)
	if len(verdicts) != 1 || verdicts[0].Accepted || verdicts[0].Field != "spec.volumes[0].cinder" ||
		verdicts[0].Line != 17 ||
		!strings.HasPrefix(verdicts[0].Message, "spec.volumes[0].cinder is not supported: ") {
		t.Fatalf("%+v", verdicts)
	}
	// what is an error is not a warning, too
	check(verdicts[0].Warnings, slices.Delete(slices.Clone(want), 1, 2))
	// What the API gives to every pod is nothing that its author asked for.
	if items := (Decoder{NodeName: "n"}).Decode("f", []byte(goodPod)); len(items) != 1 ||
		len(items[0].Verdict.Warnings) != 0 {
		t.Errorf("%+v", items)
	}
}
