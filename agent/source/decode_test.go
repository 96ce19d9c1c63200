package source

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berthd/berth/agent/objects"
)

const goodPod = `apiVersion: v1
kind: Pod
metadata:
  name: a
spec:
  containers:
  - name: c
    image: i
`

// summary is a verdict in one line: line document kind namespace/name ok|field: message | warnings.
func summary(v Verdict) string {
	out := fmt.Sprintf("%d/%d %s %s/%s ", v.Line, v.Document, v.Kind, v.Namespace, v.Name)
	if v.Accepted {
		out += "ok"
	} else {
		out += v.Field + ": " + v.Message
	}
	if len(v.Warnings) > 0 {
		out += " | " + strings.Join(v.Warnings, ", ")
	}
	return out
}

func TestDecode(t *testing.T) {
	const named = "apiVersion: v1\nkind: %s\nmetadata: {name: %s}\n"
	cm := func(name string) string { return fmt.Sprintf(named, "ConfigMap", name) }
	tests := []struct {
		name string
		data string
		want []string
	}{
		{"pod", goodPod, []string{"1/1 Pod default/a-n ok"}},
		{"json", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c"},"data":{"k":"v"}}`, []string{"1/1 ConfigMap default/c ok"}},
		{"byte order mark", "\ufeff" + goodPod, []string{"1/1 Pod default/a-n ok"}},
		{"windows lines", strings.ReplaceAll(goodPod, "\n", "\r\n"), []string{"1/1 Pod default/a-n ok"}},
		{"empty", "", []string{"0/0  / : the manifest is empty"}},
		{"comments only", "# x\n\n---\n# y\n...\n", []string{"0/0  / : the manifest is empty"}},
		{"binary", "a: b\x00", []string{"0/0  / : the manifest is not text (UTF-8)"}},
		{"latin1", "a: \xe9", []string{"0/0  / : the manifest is not text (UTF-8)"}},
		{"too large", "#" + strings.Repeat("x", MaxManifest), []string{"0/0  / : the manifest is larger than 10 MiB"}},
		{"just as large as it may be", cm("c") + "#" + strings.Repeat("x", MaxManifest-len(cm("c"))-1), []string{"1/1 ConfigMap default/c ok"}},
		{"several", cm("x") + "---\n" + goodPod + "--- # y\n" + fmt.Sprintf(named, "Secret", "z"), []string{
			"1/1 ConfigMap default/x ok", "4/2 Pod default/a-n ok", "13/3 Secret default/z ok",
		}},
		{"empty documents are not counted", "---\n---\n" + cm("x") + "---\n", []string{"2/1 ConfigMap default/x ok"}},
		{"a separator in a text", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\ndata:\n  k: |\n    a\n    ---\n    b\n", []string{"1/1 ConfigMap default/x ok"}},
		{"good and bad", cm("x") + "---\nkind: [\n---\n" + cm("z"), []string{
			"1/1 ConfigMap default/x ok", "5/2  / : yaml: line 5: did not find expected node content", "6/3 ConfigMap default/z ok",
		}},
		{"syntax error", "a: b\n c: d\n", []string{"2/1  / : yaml: line 2: mapping values are not allowed in this context"}},
		{"not an object", "just text", []string{"1/1  / : json: cannot unmarshal string into Go value of type struct"}},
		{"a name that YAML takes for a truth value", cm("yes"), []string{
			"3/1  / metadata.name: json: cannot unmarshal bool into Go struct field .metadata.name of type string",
		}},
		{"no kind", "apiVersion: v1\n", []string{"1/1  / kind: kind: Required value"}},
		{"no version", "kind: Pod\n", []string{"1/1 Pod / apiVersion: apiVersion: Required value"}},
		{"other kind", "apiVersion: apps/v1\n\nkind: Deployment\nmetadata: {name: d}\n", []string{
			"3/1 Deployment /d kind: Deployment of apps/v1 is not supported in manifests: only Pod, ConfigMap, Secret and lists of them, of v1, are",
		}},
		{"other version", "apiVersion: v2\nkind: Pod\n", []string{
			"2/1 Pod / kind: Pod of v2 is not supported in manifests: only Pod, ConfigMap, Secret and lists of them, of v1, are",
		}},
		{"no name", "apiVersion: v1\nkind: Pod\nmetadata:\n  labels: {}\n", []string{"3/1 Pod / metadata.name: metadata.name: Required value"}},
		{"invalid", strings.Replace(goodPod, "image: i", "image: ''", 1), []string{
			"8/1 Pod default/a-n spec.containers[0].image: spec.containers[0].image: Required value",
		}},
		{"invalid twice, first first", strings.Replace(goodPod, "image: i", "image: ''\n    ports:\n    - containerPort: 0", 1), []string{
			"8/1 Pod default/a-n spec.containers[0].image: [spec.containers[0].image: Required value, spec.containers[0].ports[0].containerPort: Required value]",
		}},
		{"a field that is missing", strings.Replace(goodPod, "    image: i\n", "", 1), []string{
			"7/1 Pod default/a-n spec.containers[0].image: spec.containers[0].image: Required value",
		}},
		{"wrong type", strings.Replace(goodPod, "image: i", "image: i\n    ports:\n    - containerPort: x", 1), []string{
			"10/1 Pod /a spec.containers.ports.containerPort: json: cannot unmarshal string into Go struct field ContainerPort.spec.containers.ports.containerPort of type int32",
		}},
		{"unknown field", strings.Replace(goodPod, "image: i", "image: i\n    imagePolicy: Never", 1), []string{
			`1/1 Pod default/a-n ok | line 9: unknown field "spec.containers[0].imagePolicy"`,
		}},
		{"wrong case is unknown", strings.Replace(goodPod, "spec:", "Spec: {}\nspec:", 1), []string{`1/1 Pod default/a-n ok | line 5: unknown field "Spec"`}},
		{"duplicate key", goodPod + "kind: Pod\n", []string{`9/1  / : duplicate key "kind"`}},
		{"duplicate key in JSON", `{"apiVersion":"v1","kind":"ConfigMap","kind":"Secret"}`, []string{`1/1  / : duplicate key "kind"`}},
		{"a merged key may be overridden", "x: &x {name: a}\napiVersion: v1\nkind: ConfigMap\nmetadata: {<<: *x, name: b}\n", []string{
			`1/1 ConfigMap default/b ok | line 1: unknown field "x"`,
		}},
		{"a claim", goodPod + "  volumes:\n  - name: v\n    persistentVolumeClaim:\n      claimName: x\n", []string{
			"12/1 Pod default/a-n spec.volumes[0].persistentVolumeClaim.claimName: static pods may not reference persistentvolumeclaims",
		}},
		{"a service account", goodPod + "  serviceAccountName: x\n", []string{
			"9/1 Pod default/a-n spec.serviceAccountName: static pods may not reference serviceaccounts",
		}},
		{"local references", goodPod + "  imagePullSecrets: [{name: s}]\n  volumes: [{name: v, configMap: {name: c}}, {name: w, secret: {secretName: s}}]\n", []string{"1/1 Pod default/a-n ok"}},
		{"ephemeral containers", goodPod + "  ephemeralContainers: [{name: e, image: i, terminationMessagePolicy: File, imagePullPolicy: Always}]\n", []string{
			"9/1 Pod default/a-n spec.ephemeralContainers: spec.ephemeralContainers: Forbidden: cannot be set on create",
		}},
		{"privileged", goodPod + "    securityContext: {privileged: true}\n", []string{"1/1 Pod default/a-n ok"}},
		{"list", "apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: ConfigMap, metadata: {name: x}}\n- {apiVersion: v1, kind: Pod}\n", []string{
			"4/1 ConfigMap default/x ok", "5/1 Pod / metadata.name: metadata.name: Required value",
		}},
		{"typed list", "apiVersion: v1\nkind: ConfigMapList\nitems:\n- metadata: {name: x}\n", []string{"4/1 ConfigMap default/x ok"}},
		{"empty list", "apiVersion: v1\nkind: PodList\n", []string{"1/1 PodList / items: the list is empty"}},
		{"list of lists", "apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: List, items: []}\n", []string{"4/1 List / items: a list inside of a list is not supported"}},
		{"bad base64", fmt.Sprintf(named, "Secret", "s") + "data: {k: '!'}\n", []string{"1/1 Secret /s : illegal base64 data at input byte 0"}},
		{"invalid key", cm("c") + "data:\n  ok: a\n  a/b: c\n", []string{
			"6/1 ConfigMap default/c data[a/b]: data[a/b]: Invalid value: \"a/b\": a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')",
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var got []string
			for _, item := range (Decoder{NodeName: "n"}).Decode("/d/f.yaml", []byte(tt.data)) {
				text := summary(item.Verdict)
				if i := strings.Index(text, " of type struct"); i > 0 {
					text = text[:i+len(" of type struct")] // the type of no concern follows
				}
				got = append(got, text)
				if item.Verdict.Accepted != (item.Pod != nil || item.Object != nil) {
					t.Errorf("accepted %v with pod %v and object %v", item.Verdict.Accepted, item.Pod != nil, item.Object != nil)
				}
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestSecretStringData(t *testing.T) {
	items := Decoder{NodeName: "n"}.Decode("f.yaml", []byte("apiVersion: v1\nkind: Secret\nmetadata: {name: s}\ndata: {a: YQ==, b: eA==}\nstringData: {b: b}\n"))
	store := objects.New()
	store.Replace(NameFile, []objects.Object{items[0].Object})
	s, _ := store.Secret("default", "s")
	if string(s.Data["a"]) != "a" || string(s.Data["b"]) != "b" || s.StringData != nil || s.Type != "Opaque" {
		t.Errorf("%+v", s)
	}
}

// A few bytes must not become gigabytes, whichever way the aliases are stacked.
func TestYAMLBombs(t *testing.T) {
	var laughs strings.Builder
	laughs.WriteString("a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n")
	for i := 1; i < 12; i++ {
		ref := fmt.Sprintf("*a%d,", i-1)
		fmt.Fprintf(&laughs, "a%d: &a%d [%s]\n", i, i, strings.TrimSuffix(strings.Repeat(ref, 10), ","))
	}
	for name, data := range map[string]string{
		"billion laughs":     laughs.String(),
		"one long text":      "a: &a " + strings.Repeat("x", 1<<20) + "\nb: [" + strings.Repeat("*a,", 1000) + "]\n",
		"many small ones":    "a: &a [" + strings.Repeat("x,", 1000) + "]\nb: [" + strings.Repeat("*a,", 1000) + "]\n",
		"as keys":            "a: &a " + strings.Repeat("x", 1<<20) + "\nb: [" + strings.Repeat("{*a : 1},", 1000) + "]\n",
		"inside of itself":   "a: &a [*a]\n",
		"merged into itself": "a: &a\n  <<: *a\n",
		"very deep":          strings.Repeat("[", 20000),
		"very deep mapping":  strings.Repeat("{a: ", 20000),
	} {
		items := Decoder{NodeName: "n"}.Decode("f.yaml", []byte(data))
		if len(items) != 1 || items[0].Verdict.Accepted || items[0].Verdict.Message == "" {
			t.Errorf("%s: %+v", name, items)
			continue
		}
		if m := items[0].Verdict.Message; strings.Contains(m, "Required value") || len(m) > 500 {
			t.Errorf("%s was expanded: %.300s", name, m)
		}
	}
	// Honest aliases work.
	honest := "apiVersion: v1\nkind: ConfigMap\nmetadata: &m {name: x, labels: &l {a: b}}\ndata: *l\n"
	if items := (Decoder{NodeName: "n"}).Decode("f.yaml", []byte(honest)); !items[0].Verdict.Accepted {
		t.Errorf("%+v", items[0].Verdict)
	}
}

func TestManifestNames(t *testing.T) {
	for name, want := range map[string]bool{
		"a.yaml": true, "a.yml": true, "a.json": true, "A.YAML": true, "a.b.yaml": true, "4913.yaml": true,
		"": false, "a": false, "4913": false, ".a.yaml": false, ".a.yaml.swp": false, "a.yaml~": false, "#a.yaml#": false, ".#a.yaml": false,
		"a.yaml.bak": false, "a.yaml.rpmsave": false, "a.yaml.swp": false, "a.txt": false, "yaml": false, "..data": false, "#a.yaml": false,
	} {
		if got := isManifestName(name); got != want {
			t.Errorf("%q: %v", name, got)
		}
	}
}

func TestValidate(t *testing.T) {
	dir := t.TempDir()
	write := func(name, data string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(data), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	write("a.yaml", goodPod)
	write("b.yaml", goodPod)
	write("c.txt", "ignored")
	link := filepath.Join(dir, "link.yaml")
	if err := os.Symlink(write(".elsewhere", strings.Replace(goodPod, "name: a", "name: l", 1)), link); err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, v := range Validate("n", dir, filepath.Join(dir, "missing.yaml"), link) {
		got[filepath.Base(v.File)] += summary(v)
	}
	want := map[string]string{
		"a.yaml":       "1/1 Pod default/a-n ok",
		"b.yaml":       "1/1 Pod default/a-n : duplicate: Pod default/a-n is already in " + filepath.Join(dir, "a.yaml"),
		"link.yaml":    "1/1 Pod default/l-n ok1/1 Pod default/l-n : duplicate: Pod default/l-n is already in " + link,
		"missing.yaml": "0/0  / : no such file or directory",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// FuzzDecode: whatever the bytes, every manifest gets a verdict, decoding is deterministic, and what is accepted is complete.
func FuzzDecode(f *testing.F) {
	files, err := filepath.Glob("testdata/golden/*.[yj]*")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	for _, seed := range []string{
		"", "---\n---", "a: &a [*a]", "a: &a 1\nb: *a", "kind: List\napiVersion: v1\nitems: [1, null, {}]", "%YAML 1.1\n---\na: b\n...\n", "{", "\ufeff{}", "? [a]\n: b",
		"apiVersion: v1\nkind: Secret\nmetadata: {name: s}\nstringData: {a: b}\n---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\nbinaryData: {a: YQ==}",
		"apiVersion: v1\nkind: PodList\nitems: [{metadata: {name: a}, spec: {containers: [{name: c, image: i, resources: {limits: {cpu: 1e-3}}}]}}]",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		d := Decoder{NodeName: "n"}
		items := d.Decode("/d/f.yaml", data)
		if len(items) == 0 {
			t.Fatal("no verdict")
		}
		for i, item := range items {
			v := item.Verdict
			switch {
			case v.Accepted && item.Pod != nil:
				if item.Pod.UID == "" || item.Pod.Name == "" || item.Pod.Namespace == "" || item.Pod.UID != v.UID || item.Pod.Name != v.Name {
					t.Errorf("item %d: %+v", i, v)
				}
			case v.Accepted && (item.Object == nil || item.Object.GetName() == "" || item.Object.GetNamespace() == ""):
				t.Errorf("item %d: %+v", i, v)
			case !v.Accepted && (v.Message == "" || item.Pod != nil || item.Object != nil):
				t.Errorf("item %d: %+v", i, v)
			case strings.Contains(v.Message, "checking the object failed"):
				t.Errorf("item %d made the checks panic: %+v", i, v)
			}
		}
		if diff := cmp.Diff(items, d.Decode("/d/f.yaml", data)); diff != "" {
			t.Error(diff)
		}
	})
}
