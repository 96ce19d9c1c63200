package source

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Each kind that people copy from a cluster is refused with what to do instead.
func TestOtherKinds(t *testing.T) {
	for kind, want := range map[string]string{
		"Deployment":     "copy spec.template (its metadata and its spec) into a manifest of kind Pod",
		"DeploymentList": "copy spec.template",
		"DaemonSet":      "one manifest for each pod",
		"StatefulSet":    "PersistentVolumeClaim for each volumeClaimTemplate",
		"Job":            "restartPolicy OnFailure or Never",
		"CronJob":        "berth run FILE --once",
		"Service":        "hostPort or hostNetwork",
		"Ingress":        "run the proxy itself as a pod",
		"Namespace":      "metadata.namespace of the pods is enough",
		"ServiceAccount": "leave it out, and serviceAccountName in the pod",
		"StorageClass":   "write a PersistentVolume",
		"NetworkPolicy":  "only the controllers of a cluster act on it",
		"Widget":         "only Pod, ConfigMap, Secret",
	} {
		text := fmt.Sprintf("apiVersion: x/v1\nkind: %s\nmetadata: {name: d}\n", kind)
		items := Decoder{NodeName: "n"}.Decode("/m/x.yaml", []byte(text))
		if len(items) != 1 || items[0].Result.Accepted || !strings.Contains(items[0].Result.Message, want) ||
			items[0].Result.Line != 2 {
			t.Errorf("%s: %+v", kind, items)
		}
	}
}

func TestIgnoredIn(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{
		"web.yaml", "b.json", "notes.txt", ".web.yaml.swp", "#web.yaml#", "web.yaml~", "web", "..2026_01_01",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"below.yaml", "..data"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	var got []string
	for _, i := range IgnoredIn(dir) {
		got = append(got, filepath.Base(i.Path)+": "+i.Why)
	}
	const hidden, other = "its name is that of a hidden or temporary file", "its name does not end in .yaml, .yml or .json"
	want := []string{
		"#web.yaml#: " + hidden, ".web.yaml.swp: " + hidden,
		"below.yaml: it is a directory: manifests in directories below are not read",
		"notes.txt: " + other, "web: " + other, "web.yaml~: " + hidden,
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("ignored:\n got %q\nwant %q", got, want)
	}
	if got := IgnoredIn(filepath.Join(dir, "web.yaml")); got != nil {
		t.Errorf("in a file: %v", got)
	}
	if got := IgnoredIn(filepath.Join(dir, "nowhere")); got != nil {
		t.Errorf("nowhere: %v", got)
	}
}
