package source

import (
	"fmt"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
)

func localManifest(kind, immutable, value string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: %s\nmetadata: {name: m}\nimmutable: %s\ndata:\n  k: %s\n", kind,
		immutable, value)
}

// An immutable object stays as it is until it is deleted, in upstream's words.
func TestFileImmutable(t *testing.T) {
	const words = "field is immutable when `immutable` is set"
	for _, kind := range []string{"ConfigMap", "Secret"} {
		dir := privateDir(t)
		r := start(t, dir)
		value := func(s Snapshot) string {
			if len(s.Objects) != 1 {
				return "none"
			}
			if cm, ok := s.Objects[0].(*v1.ConfigMap); ok {
				return cm.Data["k"]
			}
			return strings.TrimRight(string(s.Objects[0].(*v1.Secret).Data["k"]), "\n")
		}
		one, two := "one", "two"
		if kind == "Secret" {
			one, two = "b25l", "dHdv"
		}
		r.write("m.yaml", localManifest(kind, "true", one))
		r.until("the object", func(s Snapshot) bool { return value(s) == "one" })
		for _, step := range []struct{ data, field string }{
			{localManifest(kind, "true", two), "data"},
			{localManifest(kind, "false", one), "immutable"},
			{localManifest(kind, "true", two), "data"},
		} {
			r.write("m.yaml", step.data)
			s := r.refused("m.yaml", step.field+": Forbidden: "+words)
			if value(s) != "one" {
				t.Errorf("%s: the object became %q", kind, value(s))
			}
			for _, v := range s.Results {
				if !v.Accepted && (v.Field != step.field || v.Line == 0 || v.Line == 1) {
					t.Errorf("%s: field %q line %d", kind, v.Field, v.Line)
				}
			}
		}
		r.write("m.yaml", strings.Replace(localManifest(kind, "true", one), "name: m", "name: m, labels: {a: b}", 1))
		r.until("new labels", func(s Snapshot) bool {
			return len(s.Objects) == 1 && s.Objects[0].GetLabels()["a"] == "b"
		})
		r.write("m.yaml", podManifest("p", "i:1")) // deleted
		r.pods("p=i:1")
		r.write("m.yaml", localManifest(kind, "false", two))
		r.until("a new object", func(s Snapshot) bool { return value(s) == "two" })
		r.write("m.yaml", localManifest(kind, "true", one))
		r.until("what is not immutable may change, and become it", func(s Snapshot) bool { return value(s) == "one" })
	}
}
