package source

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	strictjson "sigs.k8s.io/json"

	"github.com/berthd/berth/agent/objects"
)

// Item is one object of a manifest. Pod or Object is set if, and only if, the verdict accepts it.
type Item struct {
	Verdict Verdict
	Pod     *v1.Pod
	Object  objects.Object
}

// Decoder decodes manifests. It keeps no state.
type Decoder struct {
	// NodeName is the node's name: the suffix of pods' names, and part of their UIDs.
	NodeName string
}

// Decode decodes one manifest: YAML or JSON, one or several documents of Pod, ConfigMap, Secret or lists of them. file is the manifest's path as configured,
// which is part of the UIDs. Every document gives at least one item, and a manifest without any gives one, too: an empty manifest is
// not accepted, since it is more often half-written than meant.
func (d Decoder) Decode(file string, data []byte) []Item {
	if p := checkBytes(data); p != nil {
		return []Item{rejected(Verdict{File: file}, *p)}
	}
	docs := split(data)
	if len(docs) == 0 {
		return []Item{rejected(Verdict{File: file}, problem{message: "the manifest is empty"})}
	}
	var items []Item
	for _, doc := range docs {
		raw, p := doc.toJSON()
		if p != nil {
			items = append(items, rejected(Verdict{File: file, Document: doc.index}, *p))
			continue
		}
		items = append(items, d.decodeObject(file, element{doc: doc, json: raw})...)
		doc.root = nil
	}
	return items
}

// element is an object within a document: the whole of it, or an item of a list.
type element struct {
	doc    *document
	json   []byte
	prefix string // the field path of the object within its document
}

// line is the file's line of a field of the object.
func (e element) line(path string) int {
	return e.doc.lineOf(strings.TrimSuffix(e.prefix+path, "."))
}

// rejected is an item that was not accepted.
func rejected(v Verdict, p problem) Item {
	v.Accepted, v.Field, v.Message = false, p.field, p.message
	if p.line > 0 {
		v.Line = p.line
	}
	return Item{Verdict: v}
}

// decodeObject decodes one object, or the objects of a list. A bug that makes upstream's code panic is a verdict about that manifest.
func (d Decoder) decodeObject(file string, e element) (items []Item) {
	v := Verdict{File: file, Document: e.doc.index, Line: e.doc.line}
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
		return []Item{rejected(v, e.typeProblem(err))}
	}
	v.Kind, v.Namespace, v.Name = head.Kind, head.Metadata.Namespace, head.Metadata.Name
	if e.prefix != "" {
		v.Line = e.line("")
	}
	switch {
	case head.Kind == "" || head.APIVersion == "":
		missing := "kind"
		if head.Kind != "" {
			missing = "apiVersion"
		}
		return []Item{rejected(v, problem{field: missing, message: missing + ": Required value"})}
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
	case "List", "PodList", "ConfigMapList", "SecretList":
		return d.decodeList(v, e, head.Kind, head.Items)
	default:
		return []Item{rejected(v, unsupported(e, head.TypeMeta))}
	}
}

func unsupported(e element, t metav1.TypeMeta) problem {
	return problem{
		line: e.line("kind"), field: "kind",
		message: fmt.Sprintf("%s of %s is not supported in manifests: only Pod, ConfigMap, Secret and lists of them, of v1, are", t.Kind, t.APIVersion),
	}
}

// decodeList decodes the items of a list. Items of a typed list need not say their kind.
func (d Decoder) decodeList(v Verdict, e element, kind string, raw []json.RawMessage) []Item {
	if e.prefix != "" {
		return []Item{rejected(v, problem{field: "items", message: "a list inside of a list is not supported"})}
	}
	if len(raw) == 0 {
		return []Item{rejected(v, problem{field: "items", message: "the list is empty"})}
	}
	var items []Item
	for i, r := range raw {
		if kind != "List" {
			r = withType(r, strings.TrimSuffix(kind, "List"))
		}
		items = append(items, d.decodeObject(v.File, element{doc: e.doc, json: r, prefix: fmt.Sprintf("items[%d].", i)})...)
	}
	return items
}

// withType gives an item of a typed list its kind and version, where it does not say them.
func withType(raw json.RawMessage, kind string) json.RawMessage {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(raw, &fields); err != nil || fields == nil {
		return raw
	}
	for key, value := range map[string]string{"kind": kind, "apiVersion": "v1"} {
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

// unmarshal decodes an element into an API type, and returns warnings about fields that the type does not have.
func (e element) unmarshal(into any) (warnings []string, p *problem) {
	strict, err := strictjson.UnmarshalStrict(e.json, into, strictjson.DisallowUnknownFields)
	if err != nil {
		found := e.typeProblem(err)
		return nil, &found
	}
	for _, s := range strict {
		text := s.Error()
		var fieldError strictjson.FieldError
		if errors.As(s, &fieldError) {
			text = fmt.Sprintf("line %d: %s", e.line(fieldError.FieldPath()), text)
		}
		warnings = append(warnings, text)
	}
	return warnings, nil
}

var fieldInError = regexp.MustCompile(`Go struct field \w*\.(\S+) of type`)

// typeProblem says which field has a value of a wrong type, as far as the decoder tells.
func (e element) typeProblem(err error) problem {
	p := problem{message: err.Error()}
	if m := fieldInError.FindStringSubmatch(p.message); m != nil {
		p.field = m[1]
		p.line = e.line(m[1])
	}
	return p
}

// fieldProblem turns upstream's list of invalid fields into one problem, about the first.
func (e element) fieldProblem(errs field.ErrorList) *problem {
	if len(errs) == 0 {
		return nil
	}
	return &problem{line: e.line(errs[0].Field), field: errs[0].Field, message: errs.ToAggregate().Error()}
}
