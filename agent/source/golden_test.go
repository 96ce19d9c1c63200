package source

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/berthd/berth/internal/pods"
)

// A node can be switched between a kubelet and berth without restarting a pod only if both make the
// very same pod of a manifest. testdata/golden/expected.txt is what a kubelet made of the manifests
// beside it.
func TestSamePodsAsKubelet(t *testing.T) {
	const node, dir = "node-a.example", "/etc/berth-golden/manifests"
	text, err := os.ReadFile("testdata/golden/expected.txt")
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]*v1.Pod{}
	for _, doc := range strings.Split(string(text), "---\n")[1:] {
		pod := &v1.Pod{}
		if err := yaml.UnmarshalStrict([]byte(doc), pod); err != nil {
			t.Fatal(err)
		}
		want[pod.Name] = pod
	}
	files, err := filepath.Glob("testdata/golden/*.[yj]*")
	if err != nil || len(files) != len(want) {
		t.Fatalf("%d manifests and %d pods, %v", len(files), len(want), err)
	}
	mux := NewMux(named(pods.SourceFile), MuxDeps{})
	var read []*v1.Pod
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		items := Decoder{NodeName: node}.Decode(filepath.Join(dir, filepath.Base(file)), data)
		if len(items) != 1 || !items[0].Result.Accepted {
			t.Fatalf("%s: %+v", file, items)
		}
		read = append(read, items[0].Pod)
	}
	mux.Set(Snapshot{Source: pods.SourceFile, Pods: read})
	for _, pod := range mux.Current().Pods {
		got := pod.DeepCopy()
		delete(got.Annotations, pods.AnnotationSeen)
		// Through YAML and back, as the expected ones came.
		raw, err := yaml.Marshal(got)
		if err != nil {
			t.Fatal(err)
		}
		again := &v1.Pod{}
		if err := yaml.Unmarshal(raw, again); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want[pod.Name], again); diff != "" {
			t.Errorf("%s differs from what a kubelet makes of it:\n%s", pod.Name, diff)
		}
	}
}

// The same document has the same UID wherever it stands in a file, and another one in another file
// or on another node.
func TestUID(t *testing.T) {
	const pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {containers: [{name: c, image: i}]}\n"
	const other = "apiVersion: v1\nkind: Pod\nmetadata: {name: b}\nspec: {containers: [{name: c, image: i}]}\n"
	uid := func(node, file, data string, item int) string {
		return string(Decoder{NodeName: node}.Decode(file, []byte(data))[item].Pod.UID)
	}
	base := uid("n", "/d/a.yaml", pod, 0)
	if got := uid("n", "/d/a.yaml", "# comment\n---\n"+other+"---\n"+pod, 1); got != base {
		t.Errorf("second document: %s, want %s", got, base)
	}
	for _, different := range []string{
		uid("n", "/d/b.yaml", pod, 0), uid("m", "/d/a.yaml", pod, 0), uid("n", "/d/a.yaml", other, 0),
	} {
		if different == base {
			t.Error("same UID")
		}
	}
}
