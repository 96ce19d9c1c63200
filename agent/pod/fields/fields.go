package fields

import (
	"strings"
	"sync"
)

// Mark is what berth does with a field.
type Mark string

// The marks.
const (
	// Works says that the field does what Kubernetes says, on every node.
	Works Mark = "works"
	// WorksWhere says that the field works on nodes and for pods that meet the condition. Otherwise
	// the pod is refused or gets a warning.
	WorksWhere Mark = "works where"
	// NoEffect says that the field is accepted and has no effect. A pod that uses it gets a
	// warning.
	NoEffect Mark = "accepted, no effect"
	// Refused says that a pod with this field does not run.
	Refused Mark = "refused"
)

// Marks lists the marks, the best first.
func Marks() []Mark { return []Mark{Works, WorksWhere, NoEffect, Refused} }

// Scope says who acts on a field in Kubernetes 1.36.
type Scope string

// The scopes.
const (
	// Node says that a kubelet on Linux acts on the field, also in pods from manifests.
	Node Scope = "node"
	// Cluster says that a kubelet acts on the field only for pods from an API server, because the
	// field needs objects that only a cluster has.
	Cluster Scope = "cluster"
	// ControlPlane says that the scheduler, a controller or the API server acts on the field, and
	// no node does.
	ControlPlane Scope = "control plane"
	// Windows says that the field is for Windows only.
	Windows Scope = "windows"
	// Nowhere says that Kubernetes itself refuses the field in that place, or no longer has its
	// function.
	Nowhere Scope = "nowhere"
)

// Scopes lists the scopes.
func Scopes() []Scope { return []Scope{Node, Cluster, ControlPlane, Windows, Nowhere} }

// Field is one path and what berth does with it in pods from manifests.
type Field struct {
	// Path is written as in a manifest; see the package's documentation.
	Path string `json:"path"`
	Mark Mark   `json:"mark"`
	// Condition says when the field works, for [WorksWhere], and why it does not work, for
	// [NoEffect] and [Refused].
	Condition string `json:"condition"`
	// Test is the test that proves the mark: PACKAGE/TEST, or PACKAGE/TEST/CASE.
	Test string `json:"test"`
	// Scope says who acts on the field in Kubernetes.
	Scope Scope `json:"scope"`

	// APIServer is what berth does with the field in pods from the API, if that is different;
	// otherwise nil.
	APIServer *Outcome `json:"apiServer,omitempty"`

	// leaf says that the field takes a value, so that it is counted. derived says that no rule
	// names the field, and that its mark sums up the marks of its parts.
	leaf, derived bool
	// root is the path that the rule names.
	root string
}

// Outcome is a mark and its condition.
type Outcome struct {
	Mark      Mark   `json:"mark"`
	Condition string `json:"condition"`
}

// String is the mark with its condition; empty for nil.
func (o *Outcome) String() string {
	switch {
	case o == nil:
		return ""
	case o.Condition == "":
		return string(o.Mark)
	}
	return string(o.Mark) + ": " + o.Condition
}

// Derived reports whether no rule names the field itself: it is a struct or a list, and its mark
// sums up the marks of its parts.
func (f Field) Derived() bool { return f.derived }

// Part reports whether the field's rule names something that the field is a part of.
func (f Field) Part() bool { return f.root != f.Path }

// all is made once and never changes.
var all = sync.OnceValue(func() []Field {
	ix := index()
	var out []Field
	for _, n := range nodes() {
		f := Field{Path: n.path, leaf: n.leaf}
		r, root := ix.findRoot(n.path)
		if f.root = root; r != nil {
			f.Mark, f.Condition, f.Test, f.Scope = r.mark, r.condition, r.test, r.scope
			if b := r.forAPI(); b.mark != r.mark || b.condition != r.condition {
				f.APIServer = &Outcome{b.mark, b.condition}
			}
		} else if !n.leaf {
			f.derived = true
		}
		out = append(out, f)
	}
	for i := range out {
		if out[i].derived {
			out[i].sumUp(out[i+1:])
		}
	}
	return out
})

// All returns every field, in the order of the API's types.
func All() []Field { return append([]Field(nil), all()...) }

// sumUp gives a struct or a list the mark of its parts, which are the first of behind.
func (f *Field) sumUp(behind []Field) {
	first, same, working := (*Field)(nil), true, false
	for i := range behind {
		part := &behind[i]
		if !within(part.Path, f.Path) {
			break
		}
		if !part.leaf {
			continue
		}
		if first == nil {
			first = part
			f.Test = part.Test
		}
		same = same && part.Mark == first.Mark
		working = working || part.Mark == Works || part.Mark == WorksWhere
		if part.Scope == Node || f.Scope == "" {
			f.Scope = part.Scope
		}
	}
	switch {
	case first == nil:
	case same:
		f.Mark, f.Condition = first.Mark, first.Condition
	case working:
		f.Mark, f.Condition = WorksWhere, "see its parts"
	default:
		f.Mark, f.Condition = Refused, "see its parts"
	}
}

// within reports whether a path is root or below it.
func within(path, root string) bool {
	rest, ok := strings.CutPrefix(path, root)
	return ok && (rest == "" || rest[0] == '.' || rest[0] == '[')
}

// Figures are numbers of fields that take a value.
type Figures struct {
	// Total counts all fields, by mark.
	Total map[Mark]int
	// APIServer counts all fields by the mark that they have in pods from the API.
	APIServer map[Mark]int
	// Node counts the fields of scope [Node].
	Node map[Mark]int
	// Scopes counts all fields, by scope.
	Scopes map[Scope]int
}

// Count returns the figures of the matrix.
func Count() Figures {
	out := Figures{Total: map[Mark]int{}, APIServer: map[Mark]int{}, Node: map[Mark]int{}, Scopes: map[Scope]int{}}
	for _, f := range all() {
		if !f.leaf {
			continue
		}
		out.Total[f.Mark]++
		fromAPI := f.Mark
		if f.APIServer != nil {
			fromAPI = f.APIServer.Mark
		}
		out.APIServer[fromAPI]++
		out.Scopes[f.Scope]++
		if f.Scope == Node {
			out.Node[f.Mark]++
		}
	}
	return out
}
