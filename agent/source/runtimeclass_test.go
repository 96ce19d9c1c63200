package source

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	nodev1 "k8s.io/api/node/v1"
)

func TestDecodeRuntimeClass(t *testing.T) {
	const head = "apiVersion: node.k8s.io/v1\nkind: RuntimeClass\n"
	for name, c := range map[string]struct{ text, want string }{
		"plain":            {head + "metadata: {name: kata}\nhandler: kata\n", ""},
		"without metadata": {head + "handler: kata\n", "metadata.name"},
		"without handler":  {head + "metadata: {name: kata}\n", "handler: Required value"},
		"odd handler":      {head + "metadata: {name: kata}\nhandler: Kata_2\n", `handler: Invalid value: "Kata_2"`},
		"a namespace": {
			head + "metadata: {name: kata, namespace: x}\nhandler: kata\n", "metadata.namespace: Forbidden",
		},
		"overhead": {
			head + "metadata: {name: kata}\nhandler: kata\noverhead: {podFixed: {cpu: 250m, memory: 120Mi}}\n", "",
		},
		"negative": {
			head + "metadata: {name: kata}\nhandler: kata\noverhead:\n  podFixed:\n    memory: 1Mi\n    cpu: -1\n",
			"overhead.podFixed[cpu]: Invalid value",
		},
		"no quantity": {
			head + "metadata: {name: kata}\nhandler: kata\noverhead: {podFixed: {cpu: much}}\n",
			`"much" is not a quantity`,
		},
		"selector": {
			head +
				"metadata: {name: kata}\nhandler: kata\nscheduling: {nodeSelector: {a: b}, tolerations: [{key: x, " +
				"operator: Exists}]}\n", "",
		},
		"odd selector": {
			head + "metadata: {name: kata}\nhandler: kata\nscheduling: {nodeSelector: {a: 'b c'}}\n",
			"scheduling.nodeSelector: Invalid value",
		},
		"odd toleration": {
			head + "metadata: {name: kata}\nhandler: kata\nscheduling: {tolerations: [{operator: Equal}]}\n",
			"scheduling.tolerations[0].operator: Invalid value",
		},
		"another version": {
			"apiVersion: node.k8s.io/v1beta1\nkind: RuntimeClass\nmetadata: {name: kata}\nhandler: kata\n",
			"RuntimeClass of node.k8s.io/v1beta1 is not supported",
		},
		"a v1 of its name": {
			"apiVersion: v1\nkind: RuntimeClass\nmetadata: {name: kata}\nhandler: kata\n",
			"RuntimeClass of v1 is not supported",
		},
		"a typed list": {
			"apiVersion: node.k8s.io/v1\nkind: RuntimeClassList\nitems: [{metadata: {name: kata}, handler: kata}]\n",
			"",
		},
		"a list": {
			"apiVersion: v1\nkind: List\nitems: [{apiVersion: node.k8s.io/v1, kind: RuntimeClass, metadata: {name: " +
				"kata}, handler: kata}]\n", "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			items := Decoder{NodeName: "n"}.Decode("/m/x.yaml", []byte(c.text))
			if len(items) != 1 {
				t.Fatalf("%d items", len(items))
			}
			v := items[0].Result
			if v.Accepted != (c.want == "") || !strings.Contains(v.Message, c.want) {
				t.Errorf("accepted %v: %q, want %q", v.Accepted, v.Message, c.want)
			}
			if class, ok := items[0].Object.(*nodev1.RuntimeClass); ok != v.Accepted ||
				ok && (class.Name != "kata" || class.Handler != "kata" || class.Namespace != "") {
				t.Errorf("got %+v", items[0].Object)
			}
			if name == "negative" && (v.Line != 8 || v.Field != "overhead.podFixed[cpu]") {
				t.Errorf("it is said of %s in line %d", v.Field, v.Line)
			}
		})
	}
}

// What a class gives a pod does not change its UID: the manifest alone makes that, as on a kubelet.
func TestRuntimeClassLeavesTheUID(t *testing.T) {
	const pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {runtimeClassName: kata, containers: [{name: " +
		"c, image: i}]}\n"
	const class = "apiVersion: node.k8s.io/v1\nkind: RuntimeClass\nmetadata: {name: kata}\nhandler: kata\noverhead: " +
		"{podFixed: {cpu: 1}}\n"
	alone := Decoder{NodeName: "n"}.Decode("/m/x.yaml", []byte(pod))
	both := Decoder{NodeName: "n"}.Decode("/m/x.yaml", []byte(pod+"---\n"+class))
	if len(both) != 2 || !both[0].Result.Accepted {
		t.Fatalf("%+v", both)
	}
	if diff := cmp.Diff(alone[0].Pod.UID, both[0].Pod.UID); diff != "" {
		t.Error(diff)
	}
}
