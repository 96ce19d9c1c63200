package source

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"

	v1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	strictjson "sigs.k8s.io/json"

	"github.com/berthd/berth/agent/source/objects"
)

// Item is one object of a manifest. Pod or Object is set if, and only if, the Result accepts the
// object.
type Item struct {
	Result Result
	Pod    *v1.Pod
	Object objects.Object
	// Refused is the validation result of an accepted pod that no agent will admit. It is for
	// programs that only check manifests, and nil for every other item.
	Refused *Result
	// Lines are the lines of some fields: those that cannot change once a ConfigMap or Secret is
	// immutable, and a pod's host ports. Lines is nil for other kinds.
	Lines map[string]int
}

// Decoder decodes manifests. It keeps no state.
type Decoder struct {
	// NodeName is the node's name. It is the suffix of pods' names, and part of their UIDs.
	NodeName string
	// URL means that the manifests come from a URL and not from files. Pods from a URL get other
	// UIDs and no toleration.
	URL bool
	// Allocatable is what pods can request on the machine; a pod that requests more gets a warning.
	// It is nil if the machine is not known yet, or if the machine itself will give the warning.
	Allocatable v1.ResourceList
	// PodSecurity is the Pod Security Standard by which [Validate] refuses pods; empty for none.
	// The agent applies its own at admission.
	PodSecurity string
}

// Decode decodes one manifest. The manifest is YAML or JSON with one or several documents. A
// document is a Pod, ConfigMap, Secret, PersistentVolume, PersistentVolumeClaim, RuntimeClass or
// CSIDriver, or a list of them.
//
// file is the manifest's path as configured; the path is part of the UIDs.
//
// Every document gives at least one item. A manifest without documents gives one item that is not
// accepted, because an empty manifest is usually a half-written one.
func (d Decoder) Decode(file string, data []byte) []Item {
	if p := checkBytes(data); p != nil {
		return []Item{rejected(Result{File: file}, *p)}
	}
	docs := split(data)
	if len(docs) == 0 {
		return []Item{rejected(Result{File: file}, problem{message: "the manifest is empty"})}
	}
	var items []Item
	for _, doc := range docs {
		raw, p := doc.toJSON()
		if p != nil {
			items = append(items, rejected(Result{File: file, Document: doc.index}, *p))
			continue
		}
		items = append(items, d.decodeObject(file, element{doc: doc, json: raw})...)
		doc.root = nil
	}
	return items
}

// element is an object within a document: the whole document, or an item of a list.
type element struct {
	doc    *document
	json   []byte
	prefix string // the field path of the object within its document
}

// line returns the line in the file of a field of the object.
func (e element) line(path string) int {
	return e.doc.lineOf(strings.TrimSuffix(e.prefix+path, "."))
}

// rejected returns an item that was not accepted.
func rejected(v Result, p problem) Item {
	v.Accepted, v.Field, v.Message = false, p.field, p.message
	if len(p.all) > 1 {
		v.Faults = p.all
	}
	if p.line > 0 {
		v.Line = p.line
	}
	return Item{Result: v}
}

// decodeObject decodes one object, or the objects of a list. If a bug makes upstream's code panic,
// decodeObject rejects that manifest.
func (d Decoder) decodeObject(file string, e element) (items []Item) {
	v := Result{File: file, Document: e.doc.index, Line: e.doc.line}
	defer func() {
		if r := recover(); r != nil {
			items = []Item{rejected(v, problem{message: fmt.Sprintf("checking the object failed: %v", r)})}
		}
	}()
	var head struct {
		metav1.TypeMeta `json:",inline"`
		Metadata        struct {
			Name      string `json:"name"`
			Namespace string `json:"namespace"`
		} `json:"metadata"`
		Items []json.RawMessage `json:"items"`
	}
	if err := strictjson.UnmarshalCaseSensitivePreserveInts(e.json, &head); err != nil {
		return []Item{e.untyped(v, reflect.TypeOf(head), err)}
	}
	v.Kind, v.Namespace, v.Name = head.Kind, head.Metadata.Namespace, head.Metadata.Name
	if e.prefix != "" {
		v.Line = e.line("")
	}
	switch {
	case head.Kind == "" && isCompose(e.json):
		return []Item{rejected(v, problem{line: e.line("services"), field: "services", message: composeFile})}
	case head.Kind == "" || head.APIVersion == "":
		missing := "kind"
		if head.Kind != "" {
			missing = "apiVersion"
		}
		return []Item{rejected(v, problem{field: missing, message: missing + ": Required value"})}
	case head.APIVersion == nodeVersion && head.Kind == objects.KindRuntimeClass:
		return []Item{decodeRuntimeClass(v, e)}
	case head.APIVersion == storageVersion && head.Kind == objects.KindCSIDriver:
		return []Item{decodeCSIDriver(v, e)}
	case head.APIVersion == nodeVersion && head.Kind == runtimeClassList,
		head.APIVersion == storageVersion && head.Kind == csiDriverList:
		return d.decodeList(v, e, head.TypeMeta, head.Items)
	case head.APIVersion != "v1":
		return []Item{rejected(v, unsupported(e, head.TypeMeta))}
	}
	switch head.Kind {
	case "Pod":
		return []Item{d.decodePod(v, e)}
	case objects.KindConfigMap:
		return []Item{decodeConfigMap(v, e)}
	case objects.KindSecret:
		return []Item{decodeSecret(v, e)}
	case objects.KindPersistentVolume:
		return []Item{decodeVolume(v, e)}
	case objects.KindClaim:
		return []Item{decodeClaim(v, e)}
	case "List", "PodList", "ConfigMapList", "SecretList", "PersistentVolumeList", "PersistentVolumeClaimList":
		return d.decodeList(v, e, head.TypeMeta, head.Items)
	default:
		return []Item{rejected(v, unsupported(e, head.TypeMeta))}
	}
}

// supported returns the version of each kind that a manifest may have.
func supported() map[string]string {
	return map[string]string{
		"Pod":                        "v1",
		"PodList":                    "v1",
		objects.KindConfigMap:        "v1",
		"ConfigMapList":              "v1",
		objects.KindSecret:           "v1",
		"SecretList":                 "v1",
		"List":                       "v1",
		objects.KindPersistentVolume: "v1",
		"PersistentVolumeList":       "v1",
		objects.KindClaim:            "v1",
		"PersistentVolumeClaimList":  "v1",
		objects.KindRuntimeClass:     nodeVersion,
		runtimeClassList:             nodeVersion,
		objects.KindCSIDriver:        storageVersion,
		csiDriverList:                storageVersion,
	}
}

// unsupported returns the problem with a kind that a manifest may not have. If only the spelling of
// the kind is wrong, the problem names the right spelling.
func unsupported(e element, t metav1.TypeMeta) problem {
	what := fmt.Sprintf("%s of %s is not supported in manifests: ", t.Kind, t.APIVersion)
	for kind, version := range supported() {
		switch {
		case kind == t.Kind:
			return problem{
				line:    e.line("apiVersion"),
				field:   "apiVersion",
				message: what + "did you mean apiVersion: " + version + "?",
			}
		case strings.EqualFold(kind, t.Kind) && version == t.APIVersion:
			return problem{line: e.line("kind"), field: "kind", message: what + "did you mean kind: " + kind + "?"}
		}
	}
	if instead := insteadOf(t.Kind); instead != "" {
		return problem{line: e.line("kind"), field: "kind", message: what + instead}
	}
	return problem{
		line: e.line("kind"), field: "kind",
		message: what +
			"only Pod, ConfigMap, Secret, PersistentVolume, PersistentVolumeClaim and lists of them, of v1, " +
			"RuntimeClass of node.k8s.io/v1 and CSIDriver of storage.k8s.io/v1 are",
	}
}

// decodeList decodes the items of a list. An item of a typed list may omit its kind.
func (d Decoder) decodeList(v Result, e element, list metav1.TypeMeta, raw []json.RawMessage) []Item {
	if e.prefix != "" {
		return []Item{rejected(v, problem{field: "items", message: "a list inside of a list is not supported"})}
	}
	if len(raw) == 0 {
		return []Item{rejected(v, problem{field: "items", message: "the list is empty"})}
	}
	var items []Item
	for i, r := range raw {
		if list.Kind != "List" {
			r = withType(r, strings.TrimSuffix(list.Kind, "List"), list.APIVersion)
		}
		items = append(items,
			d.decodeObject(v.File, element{doc: e.doc, json: r, prefix: fmt.Sprintf("items[%d].", i)})...)
	}
	return items
}

// withType sets the kind and version of an item of a typed list, if the item omits them.
func withType(raw json.RawMessage, kind, version string) json.RawMessage {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(raw, &fields); err != nil || fields == nil {
		return raw
	}
	for key, value := range map[string]string{"kind": kind, "apiVersion": version} {
		if _, ok := fields[key]; !ok {
			fields[key] = json.RawMessage(`"` + value + `"`)
		}
	}
	out, err := json.Marshal(fields)
	if err != nil {
		return raw
	}
	return out
}

// unmarshal decodes an element into an API type. The warnings name fields that the type does not
// have.
func (e element) unmarshal(into any) (warnings []string, p *problem) {
	strict, err := strictjson.UnmarshalStrict(e.json, into, strictjson.DisallowUnknownFields)
	if err != nil {
		found, unknown := e.typeProblem(reflect.TypeOf(into), err)
		return unknown, &found
	}
	for _, s := range strict {
		text := s.Error()
		var fieldError strictjson.FieldError
		if errors.As(s, &fieldError) {
			text = atLine(e.line(fieldError.FieldPath()), text)
		}
		warnings = append(warnings, text)
	}
	return warnings, nil
}

// typeProblem names the fields with values of a wrong type, and the right type of each. The
// warnings name fields that the type does not have.
func (e element) typeProblem(t reflect.Type, err error) (p problem, warnings []string) {
	var faults []Fault
	for _, m := range mismatches(t, e.json, "") {
		switch {
		case m.at == "":
			return problem{message: m.message}, nil
		case m.unknown:
			warnings = append(warnings, atLine(e.line(m.at), m.message))
		default:
			faults = append(faults, e.fault(m.at, m.at+": "+m.message))
		}
	}
	switch p := several(faults); {
	case p != nil:
		return *p, warnings
	case strings.Contains(err.Error(), "Go "):
		return problem{message: "a field has a value of a wrong type"}, warnings
	}
	return problem{message: err.Error()}, warnings
}

// untyped returns the validation result of an object whose head cannot be decoded; head is the type
// of the fields that every object has. If the kind is known, the result names everything that is
// wrong.
func (e element) untyped(v Result, head reflect.Type, err error) Item {
	var plain struct {
		Kind     any `json:"kind"`
		Metadata any `json:"metadata"`
	}
	if json.Unmarshal(e.json, &plain) != nil {
		p, _ := e.typeProblem(head, err)
		return rejected(v, p)
	}
	v.Kind, _ = plain.Kind.(string)
	if metadata, ok := plain.Metadata.(map[string]any); ok {
		v.Namespace, _ = metadata["namespace"].(string)
		v.Name, _ = metadata["name"].(string)
	}
	t, known := typeOf(v.Kind)
	if !known {
		t = head
	}
	p, warnings := e.typeProblem(t, err)
	if known {
		v.Warnings = warnings
	}
	return rejected(v, p)
}

// typeOf returns the API's type of a kind that a manifest may have. A list has no such type.
func typeOf(kind string) (reflect.Type, bool) {
	t, ok := map[string]reflect.Type{
		"Pod":                        reflect.TypeFor[v1.Pod](),
		objects.KindConfigMap:        reflect.TypeFor[v1.ConfigMap](),
		objects.KindSecret:           reflect.TypeFor[v1.Secret](),
		objects.KindPersistentVolume: reflect.TypeFor[v1.PersistentVolume](),
		objects.KindClaim:            reflect.TypeFor[v1.PersistentVolumeClaim](),
		objects.KindRuntimeClass:     reflect.TypeFor[nodev1.RuntimeClass](),
	}[kind]
	return t, ok
}
