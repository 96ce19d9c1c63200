package source

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/berthd/berth/agent/source/objects"
	"github.com/berthd/berth/internal/pods"
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

// summary is a result in one line: line document kind namespace/name ok|field: message | warnings.
func summary(v Result) string {
	out := fmt.Sprintf("%d/%d %s %s/%s ", v.Line, v.Document, v.Kind, v.Namespace, v.Name)
	if v.Accepted {
		out += "ok"
	} else {
		out += v.Field + ": " + v.Message
	}
	for i, f := range v.Faults {
		if i > 0 { // the first is said already
			out += fmt.Sprintf("; %d: %s", f.Line, f.Message)
		}
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
		{
			"json", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c"},"data":{"k":"v"}}`,
			[]string{"1/1 ConfigMap default/c ok"},
		},
		{"byte order mark", "\ufeff" + goodPod, []string{"1/1 Pod default/a-n ok"}},
		{"windows lines", strings.ReplaceAll(goodPod, "\n", "\r\n"), []string{"1/1 Pod default/a-n ok"}},
		{"empty", "", []string{"0/0  / : the manifest is empty"}},
		{"comments only", "# x\n\n---\n# y\n...\n", []string{"0/0  / : the manifest is empty"}},
		{"binary", "a: b\x00", []string{"0/0  / : the manifest is not text (UTF-8)"}},
		{"latin1", "a: \xe9", []string{"0/0  / : the manifest is not text (UTF-8)"}},
		{"too large", "#" + strings.Repeat("x", MaxManifest), []string{"0/0  / : the manifest is larger than 10 MiB"}},
		{
			"just as large as it may be", cm("c") + "#" + strings.Repeat("x", MaxManifest-len(cm("c"))-1),
			[]string{"1/1 ConfigMap default/c ok"},
		},
		{"several", cm("x") + "---\n" + goodPod + "--- # y\n" + fmt.Sprintf(named, "Secret", "z"), []string{
			"1/1 ConfigMap default/x ok", "4/2 Pod default/a-n ok", "13/3 Secret default/z ok",
		}},
		{"empty documents are not counted", "---\n---\n" + cm("x") + "---\n", []string{"2/1 ConfigMap default/x ok"}},
		{
			"a separator in a text",
			"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\ndata:\n  k: |\n    a\n    ---\n    b\n",
			[]string{"1/1 ConfigMap default/x ok"},
		},
		{
			"dots and comments at the end",
			cm("x") + "...\n# y\n---\n{apiVersion: v1, kind: ConfigMap, metadata: {name: q}}\n# z\n...\n",
			[]string{
				"1/1 ConfigMap default/x ok", "6/2 ConfigMap default/q ok",
			},
		},
		{
			"dots in a text", cm("x") + "data:\n  k: |\n    a\n    ...\n    b\n  l: |-\n    x\n",
			[]string{"1/1 ConfigMap default/x ok"},
		},
		{
			"a document after dots", cm("x") + "...\n" + cm("y"),
			[]string{"5/1  / : the document has ended before this: begin each document with a line ---"},
		},
		{
			"two objects of JSON",
			`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x"}}` + "\n" +
				`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"y"}}`,
			[]string{
				"2/1  / : the document has ended before this: begin each document with a line ---",
			},
		},
		{
			"more in the line that closes an object", "---\n{apiVersion: v1, kind: ConfigMap, metadata: {name: x}} }\n",
			[]string{
				"2/1  / : the document has ended before this: begin each document with a line ---",
			},
		},
		{"more in the only line", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x"}} more`, []string{
			"1/1  / : the document has ended before this: begin each document with a line ---",
		}},
		{
			"a line that is indented less than the first",
			strings.ReplaceAll(" "+strings.TrimSpace(cm("x")), "\n", "\n ") + "\ndata: {a: b}\n",
			[]string{
				"4/1  / : the document has ended before this: begin each document with a line ---",
			},
		},
		{"good and bad", cm("x") + "---\nkind: [\n---\n" + cm("z"), []string{
			"1/1 ConfigMap default/x ok", "5/2  / : not valid YAML: did not find expected node content",
			"6/3 ConfigMap default/z ok",
		}},
		{
			"syntax error", "a: b\n c: d\n",
			[]string{"2/1  / : not valid YAML: mapping values are not allowed in this context"},
		},
		{"a tab", "a:\n\tb: c\n", []string{"2/1  / : not valid YAML: found character that cannot start any token"}},
		{"not an object", "just text", []string{"1/1  / : must be an object, not a string"}},
		{"a list for an object", "- a\n", []string{"1/1  / : must be an object, not a list"}},
		{"no object", "~\n", []string{"1/1  / kind: kind: Required value"}},
		{"a name that YAML takes for a truth value", cm("yes"), []string{
			"3/1 ConfigMap / metadata.name: metadata.name: must be a string, not a boolean: put it in quotes",
		}},
		{
			"metadata that are none", "apiVersion: v1\nkind: Pod\nmetadata: x\n",
			[]string{"3/1 Pod / metadata: metadata: must be an object, not a string"},
		},
		{"no kind", "apiVersion: v1\n", []string{"1/1  / kind: kind: Required value"}},
		{"no version", "kind: Pod\n", []string{"1/1 Pod / apiVersion: apiVersion: Required value"}},
		{"other kind", "apiVersion: apps/v1\n\nkind: Deployment\nmetadata: {name: d}\n", []string{
			"3/1 Deployment /d kind: Deployment of apps/v1 is not supported in manifests: a node agent runs pods: copy " +
				"spec.template (its metadata and its spec) into a manifest of kind Pod, and write one manifest for each pod",
		}},
		{"a kind of somebody else", "apiVersion: a.b/v1\n\nkind: Widget\nmetadata: {name: d}\n", []string{
			"3/1 Widget /d kind: Widget of a.b/v1 is not supported in manifests: only Pod, ConfigMap, " +
				"Secret, PersistentVolume, PersistentVolumeClaim and lists of them, of v1, RuntimeClass of " +
				"node.k8s.io/v1 and CSIDriver of storage.k8s.io/v1 are",
		}},
		{
			"a kind in lower case", "apiVersion: v1\nkind: pod\n",
			[]string{"2/1 pod / kind: pod of v1 is not supported in manifests: did you mean kind: Pod?"},
		},
		{
			"a list in lower case", "apiVersion: v1\nkind: podlist\n",
			[]string{"2/1 podlist / kind: podlist of v1 is not supported in manifests: did you mean kind: PodList?"},
		},
		{
			"a version in upper case", "apiVersion: V1\nkind: Pod\n",
			[]string{"1/1 Pod / apiVersion: Pod of V1 is not supported in manifests: did you mean apiVersion: v1?"},
		},
		{
			"a class of another version", "apiVersion: v1\nkind: RuntimeClass\n",
			[]string{
				"1/1 RuntimeClass / apiVersion: RuntimeClass of v1 is not supported in manifests: did you mean " +
					"apiVersion: node.k8s.io/v1?",
			},
		},
		{"other version", "apiVersion: v2\nkind: Pod\n", []string{
			"1/1 Pod / apiVersion: Pod of v2 is not supported in manifests: did you mean apiVersion: v1?",
		}},
		{
			"no name", "apiVersion: v1\nkind: Pod\nmetadata:\n  labels: {}\n",
			[]string{"3/1 Pod / metadata.name: metadata.name: Required value"},
		},
		{"invalid", strings.Replace(goodPod, "image: i", "image: ''", 1), []string{
			"8/1 Pod default/a-n spec.containers[0].image: spec.containers[0].image: Required value",
		}},
		{
			"invalid twice, first first",
			strings.Replace(goodPod, "image: i", "image: ''\n    ports:\n    - containerPort: 0", 1),
			[]string{
				"8/1 Pod default/a-n spec.containers[0].image: spec.containers[0].image: Required value; 10: " +
					"spec.containers[0].ports[0].containerPort: Required value",
			},
		},
		{
			"three wrong types", strings.Replace(goodPod, "image: i", "image: 1\n    command: x\n  - name: [d]", 1),
			[]string{
				"8/1 Pod /a spec.containers[0].image: spec.containers[0].image: must be a string, not a number: " +
					"put it in " +
					"quotes; " +
					"9: spec.containers[0].command: must be a list, not a string; 10: spec.containers[1].name: " +
					"must be a " +
					"string, not a list",
			},
		},
		{
			"wrong types, the name's among them, and a field that there is not",
			"apiVersion: v1\nkind: Pod\nmetadata: {name: 5, labels: {b: true}}\nspec:\n  hostNetwork: x\n  " +
				"containers:\n" +
				"  - imagee: i\n    image: 7\n",
			[]string{
				"3/1 Pod / metadata.labels[b]: metadata.labels[b]: must be a string, not a boolean: put it in " +
					"quotes; 3: " +
					"metadata.name: must be a string, not a number: put it in quotes; " +
					"5: spec.hostNetwork: must be true or false, not a string; 8: spec.containers[0].image: " +
					"must be a " +
					"string, not a number: put it in quotes" +
					" | line 7: unknown field \"spec.containers[0].imagee\"",
			},
		},
		{
			"wrong types in what is no known kind", "apiVersion: v1\nkind: Thing\nmetadata: {name: 5}\nspec: x\n",
			[]string{
				"3/1 Thing / metadata.name: metadata.name: must be a string, not a number: put it in quotes",
			},
		},
		{
			"invalid, a reference and a kind that is refused",
			goodPod +
				"  serviceAccountName: s\n  restartPolicy: x\n  volumes:\n  - {name: g, gitRepo: {repository: r}}\n  " +
				"- {name: c, csi: {driver: d}}\n",
			[]string{
				"9/1 Pod default/a-n spec.serviceAccountName: static pods may not reference serviceaccounts; " +
					`10: spec.restartPolicy: Unsupported value: "x": supported values: "Always", "OnFailure", "Never"; ` +
					"12: spec.volumes[0].gitRepo is not supported: git-repo volume plugin has been disabled: it " +
					"lets a " +
					"pod run commands as root on the node; clone in an init container instead",
			},
		},
		{
			"upstream leaves out which mount",
			strings.Replace(goodPod, "image: i",
				"image: i\n    volumeMounts:\n    - {name: v, mountPath: /a, subPath: fine}\n"+
					"    - {name: v, mountPath: /b, subPath: ../x}\n    - {name: v, mountPath: /c, subPath: "+
					"../x}\n    - "+
					"{name: v, mountPath: /d, mountPropagation: Bidirectional}\n"+
					"  volumes: [{name: v, emptyDir: {}}]", 1),
			[]string{
				"11/1 Pod default/a-n spec.containers[0].volumeMounts[1].subPath: " +
					"spec.containers[0].volumeMounts[1].subPath: Invalid value: \"../x\": must not contain '..'; " +
					"12: spec.containers[0].volumeMounts[2].subPath: Invalid value: \"../x\": must not contain '..'; " +
					"13: spec.containers[0].volumeMounts[3].mountPropagation: Forbidden: Bidirectional mount " +
					"propagation " +
					"is available only to privileged containers",
			},
		},
		{
			"upstream shows a struct of Go",
			goodPod + "    securityContext: {privileged: true, allowPrivilegeEscalation: false}\n",
			[]string{
				"9/1 Pod default/a-n spec.containers[0].securityContext: spec.containers[0].securityContext: Invalid " +
					"value: cannot set `allowPrivilegeEscalation` to false and `privileged` to true",
			},
		},
		{
			"upstream shows a list of Go",
			goodPod + "  dnsConfig: {nameservers: ['1.1.1.1', '1.1.1.2', '1.1.1.3', '1.1.1.4']}\n",
			[]string{
				`9/1 Pod default/a-n spec.dnsConfig.nameservers: spec.dnsConfig.nameservers: Invalid value: ` +
					`["1.1.1.1","1.1.1.2","1.1.1.3","1.1.1.4"]: must not have more than 3 nameservers`,
			},
		},
		{
			"references that no static pod has",
			goodPod +
				"  serviceAccountName: x\n  volumes:\n  - name: v\n    projected: {sources: [{serviceAccountToken: " +
				"{path: t}}]}\n",
			[]string{
				"9/1 Pod default/a-n spec.serviceAccountName: static pods may not reference serviceaccounts; 12: " +
					"static " +
					"pods may not reference serviceaccounts (via projected volumes)",
			},
		},
		{"a field that is missing", strings.Replace(goodPod, "    image: i\n", "", 1), []string{
			"7/1 Pod default/a-n spec.containers[0].image: spec.containers[0].image: Required value",
		}},
		{
			"wrong type", strings.Replace(goodPod, "image: i", "image: i\n    ports:\n    - containerPort: x", 1),
			[]string{
				"10/1 Pod /a spec.containers[0].ports[0].containerPort: " +
					"spec.containers[0].ports[0].containerPort: must " +
					"be an integer, not a string",
			},
		},
		{
			"a number where a text is wanted",
			strings.Replace(goodPod, "image: i", "image: i\n    env: [{name: A, value: a}, {name: B, value: 1}]", 1),
			[]string{
				"9/1 Pod /a spec.containers[0].env[1].value: spec.containers[0].env[1].value: must be a " +
					"string, not a " +
					"number: put it in quotes",
			},
		},
		{
			"a text where a list is wanted", strings.Replace(goodPod, "image: i", "image: i\n    command: sleep 1", 1),
			[]string{
				"9/1 Pod /a spec.containers[0].command: spec.containers[0].command: must be a list, not a string",
			},
		},
		{
			"a list where an object is wanted",
			strings.Replace(goodPod, "image: i", "image: i\n    resources:\n    - limits", 1),
			[]string{
				"9/1 Pod /a spec.containers[0].resources: spec.containers[0].resources: must be an object, not a list",
			},
		},
		{
			"a text where a boolean is wanted", goodPod + "  hostNetwork: 'on'\n",
			[]string{"9/1 Pod /a spec.hostNetwork: spec.hostNetwork: must be true or false, not a string"},
		},
		{
			"a number that is too large", goodPod + "  priority: 3000000000\n",
			[]string{"9/1 Pod /a spec.priority: spec.priority: must be an integer of at most 32 bits"},
		},
		{
			"a fraction", goodPod + "  priority: 1.5\n",
			[]string{"9/1 Pod /a spec.priority: spec.priority: must be an integer of at most 32 bits"},
		},
		{
			"no quantity",
			strings.Replace(goodPod, "image: i", "image: i\n    resources:\n      limits:\n        memory: much", 1),
			[]string{
				"11/1 Pod /a spec.containers[0].resources.limits[memory]: " +
					"spec.containers[0].resources.limits[memory]: " +
					`"much" is not a quantity: write a number, perhaps with a unit behind it, such as 2, 500m, 64M or 64Mi`,
			},
		},
		{
			"a boolean as a port",
			strings.Replace(goodPod, "image: i", "image: i\n    livenessProbe:\n      httpGet: {port: true}", 1),
			[]string{
				"10/1 Pod /a spec.containers[0].livenessProbe.httpGet.port: " +
					"spec.containers[0].livenessProbe.httpGet.port: must be an integer or a string, not a boolean",
			},
		},
		{"no time", strings.Replace(goodPod, "name: a", "name: a\n  creationTimestamp: now", 1), []string{
			"5/1 Pod /a metadata.creationTimestamp: metadata.creationTimestamp: must be a time as in RFC 3339, such " +
				"as 2006-01-02T15:04:05Z",
		}},
		{
			"a label that YAML takes for a number", strings.Replace(goodPod, "name: a", "name: a\n  labels: {v: 1}", 1),
			[]string{
				"5/1 Pod /a metadata.labels[v]: metadata.labels[v]: must be a string, not a number: put it in quotes",
			},
		},
		{
			"a wrong type in a list",
			"apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: ConfigMap, metadata: {name: x},\n   data: " +
				"{a: 1}}\n",
			[]string{
				"5/1 ConfigMap /x data[a]: data[a]: must be a string, not a number: put it in quotes",
			},
		},
		{"unknown field", strings.Replace(goodPod, "image: i", "image: i\n    imagePolicy: Never", 1), []string{
			`1/1 Pod default/a-n ok | line 9: unknown field "spec.containers[0].imagePolicy"`,
		}},
		{
			"wrong case is unknown", strings.Replace(goodPod, "spec:", "Spec: {}\nspec:", 1),
			[]string{`1/1 Pod default/a-n ok | line 5: unknown field "Spec"`},
		},
		{"duplicate key", goodPod + "kind: Pod\n", []string{`9/1  / : duplicate key "kind"`}},
		{
			"duplicate key in JSON", `{"apiVersion":"v1","kind":"ConfigMap","kind":"Secret"}`,
			[]string{`1/1  / : duplicate key "kind"`},
		},
		{
			"a merged key may be overridden",
			"x: &x {name: a}\napiVersion: v1\nkind: ConfigMap\nmetadata: {<<: *x, name: b}\n",
			[]string{
				`1/1 ConfigMap default/b ok | line 1: unknown field "x"`,
			},
		},
		{"a claim", goodPod + "  volumes:\n  - name: v\n    persistentVolumeClaim:\n      claimName: x\n", []string{
			"1/1 Pod default/a-n ok",
		}},
		{
			"a claim template",
			goodPod +
				"  volumes:\n  - name: v\n    ephemeral: {volumeClaimTemplate: {spec: {accessModes: [ReadWriteOnce], " +
				"resources: {requests: {storage: 1Gi}}}}}\n",
			[]string{
				"11/1 Pod default/a-n spec.volumes[0].ephemeral: static pods may not reference " +
					"persistentvolumeclaims " +
					"(via ephemeral volumes)",
			},
		},
		{
			"a volume that is never mounted",
			goodPod + "  volumes:\n  - name: v\n    gitRepo: {repository: https://example.com/x}\n",
			[]string{
				"1/1 Pod default/a-n ok | line 11: spec.volumes[0].gitRepo: not supported, the pod will fail: " +
					"git-repo " +
					"volume plugin has been disabled: it lets a pod run commands as root on the node; clone in an " +
					"init container instead",
			},
		},
		{"a persistent volume", volume("hostPath: {path: /x}"), []string{"1/1 PersistentVolume /x ok"}},
		{"one to be deleted", volume("hostPath: {path: /x}\n  persistentVolumeReclaimPolicy: Delete"), []string{
			"1/1 PersistentVolume /x ok | line 7: spec.persistentVolumeReclaimPolicy: Delete has no effect: " +
				"the agent " +
				"keeps the data of every volume",
		}},
		{"one of a CSI driver", volume("csi: {driver: d, volumeHandle: h}"), []string{"1/1 PersistentVolume /x ok"}},
		{
			"a CSI driver",
			"apiVersion: storage.k8s.io/v1\nkind: CSIDriver\nmetadata: {name: d.example.com}\nspec:\n  " +
				"attachRequired: true\n  volumeLifecycleModes: [Ephemeral]\n  tokenRequests: [{audience: a}]\n",
			[]string{
				"1/1 CSIDriver /d.example.com ok | line 5: spec.attachRequired: has no effect: volumes are " +
					"attached by a " +
					"cluster's controllers only, " +
					"line 7: spec.tokenRequests: pods of manifests have no tokens: their volumes of this driver fail",
			},
		},
		{
			"a wrong CSI driver",
			"apiVersion: storage.k8s.io/v1\nkind: CSIDriver\nmetadata: {name: d.example.com}\nspec:\n  " +
				"fsGroupPolicy: " +
				"Sometimes\n  volumeLifecycleModes: [Never]\n",
			[]string{
				`5/1 CSIDriver /d.example.com spec.fsGroupPolicy: spec.fsGroupPolicy: Unsupported value: "Sometimes": ` +
					`supported values: "ReadWriteOnceWithFSType", "File", "None"; ` +
					`6: spec.volumeLifecycleModes[0]: Unsupported value: "Never": supported values: "Persistent", "Ephemeral"`,
			},
		},
		{"a local one for any node", volume("local: {path: /x}"), []string{
			"4/1 PersistentVolume /x spec.nodeAffinity: spec.nodeAffinity: Required value: Local volume " +
				"requires node " +
				"affinity",
		}},
		{
			"one without capacity",
			strings.Replace(volume("hostPath: {path: /x}"), "capacity: {storage: 1Gi}", "storageClassName: c", 1),
			[]string{
				`4/1 PersistentVolume /x spec.capacity: spec.capacity: Required value; 4: spec.capacity: Unsupported ` +
					`value: supported values: "storage"`,
			},
		},
		{
			"one in a namespace",
			strings.Replace(volume("hostPath: {path: /x}"), "name: x", "name: x, namespace: other", 1),
			[]string{
				`3/1 PersistentVolume other/x metadata.namespace: metadata.namespace: Forbidden: not allowed on ` +
					`this type`,
			},
		},
		{"a good claim", aClaim, []string{"1/1 PersistentVolumeClaim default/c ok"}},
		{"a claim of other data", aClaim + "  dataSource: {kind: PersistentVolumeClaim, name: d}\n", []string{
			"1/1 PersistentVolumeClaim default/c ok | line 8: spec.dataSource: has no effect: no volume is " +
				"made here, " +
				"only bound",
		}},
		{
			"a claim without access modes",
			strings.Replace(aClaim, "accessModes: [ReadWriteOnce]", "accessModes: []", 1),
			[]string{
				"6/1 PersistentVolumeClaim default/c spec.accessModes: spec.accessModes: Required value: at least 1 " +
					"access mode is required",
			},
		},
		{
			"a list of volumes",
			"apiVersion: v1\nkind: PersistentVolumeClaimList\nitems:\n- {metadata: {name: c}, spec: {accessModes: " +
				"[ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}\n",
			[]string{
				"4/1 PersistentVolumeClaim default/c ok",
			},
		},
		{"a service account", goodPod + "  serviceAccountName: x\n", []string{
			"9/1 Pod default/a-n spec.serviceAccountName: static pods may not reference serviceaccounts",
		}},
		{
			"local references",
			goodPod +
				"  imagePullSecrets: [{name: s}]\n  volumes: [{name: v, configMap: {name: c}}, {name: w, secret: " +
				"{secretName: s}}]\n",
			[]string{"1/1 Pod default/a-n ok"},
		},
		{
			"a stop signal for no system",
			"apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec:\n  containers:\n  - name: m\n    image: x\n    " +
				"lifecycle: {stopSignal: SIGUSR1}\n",
			[]string{
				"8/1 Pod default/a-n spec.containers[0].lifecycle.stopSignal: " +
					"spec.containers[0].lifecycle.stopSignal: " +
					"Forbidden: may not be set for containers with empty `spec.os.name`",
			},
		},
		{
			"a stop signal of Linux",
			"apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec:\n  os: {name: linux}\n  containers:\n  - " +
				"name: m\n " +
				"   image: x\n    lifecycle: {stopSignal: SIGUSR1}\n",
			[]string{
				"1/1 Pod default/a-n ok",
			},
		},
		{
			"ephemeral containers",
			goodPod +
				"  ephemeralContainers: [{name: e, image: i, terminationMessagePolicy: File, imagePullPolicy: " +
				"Always}]\n",
			[]string{
				"9/1 Pod default/a-n spec.ephemeralContainers: spec.ephemeralContainers: Forbidden: cannot be set " +
					"on create",
			},
		},
		{"privileged", goodPod + "    securityContext: {privileged: true}\n", []string{"1/1 Pod default/a-n ok"}},
		{
			"list",
			"apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: ConfigMap, metadata: {name: x}}\n- " +
				"{apiVersion: v1, kind: Pod}\n",
			[]string{
				"4/1 ConfigMap default/x ok", "5/1 Pod / metadata.name: metadata.name: Required value",
			},
		},
		{
			"typed list", "apiVersion: v1\nkind: ConfigMapList\nitems:\n- metadata: {name: x}\n",
			[]string{"4/1 ConfigMap default/x ok"},
		},
		{"empty list", "apiVersion: v1\nkind: PodList\n", []string{"1/1 PodList / items: the list is empty"}},
		{
			"list of lists", "apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: List, items: []}\n",
			[]string{"4/1 List / items: a list inside of a list is not supported"},
		},
		{"bad base64", fmt.Sprintf(named, "Secret", "s") + "data: {k: '!'}\n", []string{
			"4/1 Secret /s data[k]: data[k]: must be base64: illegal base64 data at input byte 0",
		}},
		{"invalid key", cm("c") + "data:\n  ok: a\n  a/b: c\n", []string{
			"6/1 ConfigMap default/c data[a/b]: data[a/b]: Invalid value: \"a/b\": a valid config key must " +
				"consist of " +
				"alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex " +
				"used for validation is '[-._a-zA-Z0-9]+')",
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var got []string
			for _, item := range (Decoder{NodeName: "n"}).Decode("/d/f.yaml", []byte(tt.data)) {
				got = append(got, summary(item.Result))
				if item.Result.Accepted != (item.Pod != nil || item.Object != nil) {
					t.Errorf("accepted %v with pod %v and object %v", item.Result.Accepted, item.Pod != nil,
						item.Object != nil)
				}
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// volume is the manifest of a PersistentVolume of a kind.
func volume(source string) string {
	return "apiVersion: v1\nkind: PersistentVolume\nmetadata: {name: x}\nspec:\n  capacity: {storage: 1Gi}\n  " +
		source + "\n  accessModes: [ReadWriteOnce]\n"
}

const aClaim = "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: c}\nspec:\n  storageClassName: ''\n  " +
	"accessModes: [ReadWriteOnce]\n  resources: {requests: {storage: 1Gi}}\n"

func TestSecretStringData(t *testing.T) {
	items := Decoder{NodeName: "n"}.Decode("f.yaml",
		[]byte("apiVersion: v1\nkind: Secret\nmetadata: {name: s}\ndata: {a: YQ==, b: eA==}\nstringData: {b: b}\n"))
	store := objects.New()
	store.Replace(pods.SourceFile, []objects.Object{items[0].Object})
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
		"billion laughs":  laughs.String(),
		"one long text":   "a: &a " + strings.Repeat("x", 1<<20) + "\nb: [" + strings.Repeat("*a,", 1000) + "]\n",
		"many small ones": "a: &a [" + strings.Repeat("x,", 1000) + "]\nb: [" + strings.Repeat("*a,", 1000) + "]\n",
		"as keys": "a: &a " + strings.Repeat("x", 1<<20) + "\nb: [" + strings.Repeat("{*a : 1},", 1000) +
			"]\n",
		"inside of itself":   "a: &a [*a]\n",
		"merged into itself": "a: &a\n  <<: *a\n",
		"very deep":          strings.Repeat("[", 20000),
		"very deep mapping":  strings.Repeat("{a: ", 20000),
	} {
		items := Decoder{NodeName: "n"}.Decode("f.yaml", []byte(data))
		if len(items) != 1 || items[0].Result.Accepted || items[0].Result.Message == "" {
			t.Errorf("%s: %+v", name, items)
			continue
		}
		if m := items[0].Result.Message; strings.Contains(m, "Required value") || len(m) > 500 {
			t.Errorf("%s was expanded: %.300s", name, m)
		}
	}
	// Honest aliases work.
	honest := "apiVersion: v1\nkind: ConfigMap\nmetadata: &m {name: x, labels: &l {a: b}}\ndata: *l\n"
	if items := (Decoder{NodeName: "n"}).Decode("f.yaml", []byte(honest)); !items[0].Result.Accepted {
		t.Errorf("%+v", items[0].Result)
	}
}

func TestManifestNames(t *testing.T) {
	for name, want := range map[string]bool{
		"a.yaml":         true,
		"a.yml":          true,
		"a.json":         true,
		"A.YAML":         true,
		"a.b.yaml":       true,
		"4913.yaml":      true,
		"":               false,
		"a":              false,
		"4913":           false,
		".a.yaml":        false,
		".a.yaml.swp":    false,
		"a.yaml~":        false,
		"#a.yaml#":       false,
		".#a.yaml":       false,
		"a.yaml.bak":     false,
		"a.yaml.rpmsave": false,
		"a.yaml.swp":     false,
		"a.txt":          false,
		"yaml":           false,
		"..data":         false,
		"#a.yaml":        false,
	} {
		if got := isManifestName(name); got != want {
			t.Errorf("%q: %v", name, got)
		}
	}
}

// TestValidate: what an agent would say of a directory, of files in it, and of standard input.
func TestValidate(t *testing.T) {
	dir := t.TempDir()
	write := func(name, data string) string {
		path := filepath.Join(dir, name)
		must(t, os.MkdirAll(filepath.Dir(path), 0o755))
		put(t, path, data)
		return path
	}
	pod := func(name string) string { return strings.Replace(goodPod, "name: a", "name: "+name, 1) }
	m := filepath.Join(dir, "m")
	write("m/a.yaml", goodPod)
	write("m/b.yaml", goodPod)
	write("m/c.txt", "ignored")
	write("m/sub.yaml/d.yaml", "ignored")
	write("m/.hidden/in.yaml", pod("in"))
	must(t, os.Symlink(".hidden/in.yaml", filepath.Join(m, "in.yaml")))
	out := filepath.Join(m, "out.yaml")
	must(t, os.Symlink(write("elsewhere.yaml", pod("l")), out))
	empty := filepath.Join(dir, "empty")
	must(t, os.Mkdir(empty, 0o755))
	linked := filepath.Join(dir, "linked")
	must(t, os.Symlink(empty, linked))
	pipe := filepath.Join(dir, "pipe")
	must(t, unix.Mkfifo(pipe, 0o600))
	go func() { _ = os.WriteFile(pipe, []byte(pod("piped")), 0) }()

	var got []string
	paths := []string{m, filepath.Join(dir, "missing.yaml"), out, empty, linked, Stdin, pipe}
	for _, v := range Validate(Decoder{NodeName: "n"}, strings.NewReader(pod("in")), paths...) {
		got = append(got, strings.TrimPrefix(v.File, dir+"/")+": "+summary(v))
	}
	want := []string{
		"m/a.yaml: 1/1 Pod default/a-n ok",
		"m/b.yaml: 1/1 Pod default/a-n : duplicate: Pod default/a-n is already in " + filepath.Join(m, "a.yaml"),
		"m/in.yaml: 1/1 Pod default/in-n ok",
		"m/out.yaml: 0/0  / : the symbolic link leads out of the manifest directory",
		"missing.yaml: 0/0  / : it does not exist",
		"m/out.yaml: 0/0  / : the symbolic link leads out of the manifest directory",
		"empty: 0/0  / ok | no manifests in " + empty,
		"linked: 0/0  / ok | no manifests in " + linked,
		"<stdin>: 1/1 Pod default/in-n : duplicate: Pod default/in-n is already in " + filepath.Join(m, "in.yaml"),
		"pipe: 1/1 Pod default/piped-n ok",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if v := Validate(Decoder{NodeName: "n"}, strings.NewReader(strings.Repeat("x", MaxManifest+1)),
		Stdin); len(v) != 1 || !strings.Contains(v[0].Message, "larger than") {
		t.Errorf("endless input: %+v", v)
	}
}

// TestValidateHostPorts: of pods that are checked together and cannot run together the second is
// told of, with the line of the port.
func TestValidateHostPorts(t *testing.T) {
	dir := t.TempDir()
	pod := func(name, spec string) {
		put(t, filepath.Join(dir, name+".yaml"), "apiVersion: v1\nkind: Pod\nmetadata: {name: "+name+"}\nspec:\n"+spec)
	}
	pod("a", "  containers:\n  - {name: c, image: i, ports: [{containerPort: 1, hostPort: 80}]}\n")
	pod("b",
		"  containers:\n  - name: c\n    image: i\n    ports:\n    - {containerPort: 1, hostPort: 81}\n    - "+
			"{containerPort: 2, hostPort: 80}\n")
	pod("c", "  containers:\n  - {name: c, image: i, ports: [{containerPort: 1, hostPort: 80, protocol: UDP}]}\n")
	pod("d", "  hostNetwork: true\n  containers:\n  - name: c\n    image: i\n    ports:\n    - containerPort: 80\n")
	// the port of a pod that is refused is free
	pod("e", "  containers:\n  - {name: c, image: i, ports: [{containerPort: 1, hostPort: 81}]}\n")
	var got []string
	for _, v := range Validate(Decoder{NodeName: "n"}, nil, dir) {
		got = append(got, summary(v))
	}
	want := []string{
		"1/1 Pod default/a-n ok",
		"10/1 Pod default/b-n spec.containers[0].ports[1].hostPort: spec.containers[0].ports[1].hostPort: TCP " +
			"port 80 " +
			"is taken by pod default/a-n",
		"1/1 Pod default/c-n ok",
		"10/1 Pod default/d-n spec.containers[0].ports[0].hostPort: spec.containers[0].ports[0].hostPort: TCP " +
			"port 80 " +
			"is taken by pod default/a-n",
		"1/1 Pod default/e-n ok",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestValidateOddNames: a file that no agent would read because of its name is checked, and told
// of.
func TestValidateOddNames(t *testing.T) {
	dir := t.TempDir()
	for name, read := range map[string]bool{
		"a.txt":   false,
		"a":       false,
		".a.yaml": false,
		"a.yaml~": false,
		"#a.yaml": false,
		"a.yml":   true,
		"a.JSON":  true,
	} {
		path := filepath.Join(dir, name)
		put(t, path, goodPod)
		results := Validate(Decoder{NodeName: "n"}, nil, path)
		told := len(results) == 2 && strings.HasPrefix(results[1].Warnings[0], "the agent would not read it") &&
			results[1].File == path
		if !results[0].Accepted || told == read {
			t.Errorf("%s: %+v", name, results)
		}
	}
	if results := Validate(Decoder{NodeName: "n"}, nil, filepath.Join(dir, "none.txt")); len(results) != 1 ||
		results[0].Message != "it does not exist" {
		t.Errorf("%+v", results)
	}
}

// TestReadManifest: a manifest that is to be run or compared may be anywhere.
func TestReadManifest(t *testing.T) {
	dir := t.TempDir()
	put(t, filepath.Join(dir, "a"), "text")
	must(t, os.Symlink("a", filepath.Join(dir, "link")))
	for path, want := range map[string]string{
		filepath.Join(dir, "a"):    "text",
		filepath.Join(dir, "link"): "text",
		Stdin:                      "typed",
	} {
		if data, err := ReadManifest(path, strings.NewReader("typed")); string(data) != want || err != nil {
			t.Errorf("%s: %q %v", path, data, err)
		}
	}
	for path, want := range map[string]string{dir: "is a directory", filepath.Join(dir, "none"): "no such file"} {
		if _, err := ReadManifest(path, nil); err == nil || !strings.Contains(err.Error(), want) ||
			!strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// FuzzDecode: whatever the bytes, every manifest gets a result, decoding is deterministic, and
// what is accepted is complete.
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
		"", "---\n---", "a: &a [*a]", "a: &a 1\nb: *a", "kind: List\napiVersion: v1\nitems: [1, null, {}]",
		"%YAML 1.1\n---\na: b\n...\n", "{", "\ufeff{}", "? [a]\n: b",
		"apiVersion: v1\nkind: Secret\nmetadata: {name: s}\nstringData: {a: b}\n---\napiVersion: v1\nkind: " +
			"ConfigMap\n" +
			"metadata: {name: c}\nbinaryData: {a: YQ==}",
		"apiVersion: v1\nkind: PodList\nitems: [{metadata: {name: a}, spec: {containers: [{name: c, image: i, " +
			"resources: {limits: {cpu: 1e-3}}}]}}]",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		d := Decoder{NodeName: "n"}
		items := d.Decode("/d/f.yaml", data)
		if len(items) == 0 {
			t.Fatal("no result")
		}
		for i, item := range items {
			v := item.Result
			switch {
			case v.Accepted && item.Pod != nil:
				if item.Pod.UID == "" || item.Pod.Name == "" || item.Pod.Namespace == "" || item.Pod.UID != v.UID ||
					item.Pod.Name != v.Name {
					t.Errorf("item %d: %+v", i, v)
				}
			case v.Accepted && (item.Object == nil || item.Object.GetName() == "" || item.Object.GetNamespace() == ""):
				t.Errorf("item %d: %+v", i, v)
			case !v.Accepted && (v.Message == "" || item.Pod != nil || item.Object != nil):
				t.Errorf("item %d: %+v", i, v)
			case strings.Contains(v.Message, "Go struct") || strings.Contains(v.Message, "Go value"):
				t.Errorf("item %d is about Go: %+v", i, v)
			case strings.Contains(v.Message, "checking the object failed"):
				t.Errorf("item %d made the checks panic: %+v", i, v)
			}
		}
		if diff := cmp.Diff(items, d.Decode("/d/f.yaml", data)); diff != "" {
			t.Error(diff)
		}
	})
}
