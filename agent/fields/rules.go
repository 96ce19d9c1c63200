package fields

import (
	"slices"
	"strings"
	"sync"
)

// subtree at the end of a rule's path means the path and everything beneath it.
const subtree = "..."

// rule is a claim about some paths. The most specific rule of a path counts: one that names it, else the longest subtree that it is in.
type rule struct {
	// paths are exact, or end in [subtree]; {a,b} stands for both.
	paths     []string
	mark      Mark
	condition string
	test      string
	scope     Scope
	// plain are values, as %v writes them, that ask for nothing: API defaults and the like. Only for [NoEffect].
	plain []string
	// bound says why, of a rule in a scope of the API server's, the same mark holds for pods from an API server; empty means that it does not.
	bound string
	// cluster is what holds in pods from an API server of a rule in the node's scope, where that is something else.
	cluster *Outcome
}

// The tests of the marks that say that a field does not work.
const (
	testWarned  = "agent/fields/TestEveryFieldWithoutEffectIsToldOf"
	testRefused = "agent/fields/TestEveryRefusedFieldIsRefused"
)

// works is the rule of fields that do what Kubernetes says.
func works(test string, paths ...string) rule {
	return rule{paths: paths, mark: Works, test: test, scope: Node}
}

// where is the rule of fields that do so under a condition.
func where(condition, test string, paths ...string) rule {
	return rule{paths: paths, mark: WorksWhere, condition: condition, test: test, scope: Node}
}

// noEffect is the rule of fields that are accepted and not acted on.
func noEffect(scope Scope, why string, paths ...string) rule {
	return rule{paths: paths, mark: NoEffect, condition: why, test: testWarned, scope: scope}
}

// refused is the rule of fields with which a pod does not run.
func refused(scope Scope, why string, paths ...string) rule {
	return rule{paths: paths, mark: Refused, condition: why, test: testRefused, scope: scope}
}

// in puts a rule into a scope.
func (r rule) in(scope Scope) rule {
	r.scope = scope
	return r
}

// unless says which values ask for nothing.
func (r rule) unless(values ...string) rule {
	r.plain = values
	return r
}

// always says that the field does not work in pods from an API server either, and why.
func (r rule) always(why string) rule {
	r.bound = why
	return r
}

// inCluster says what holds in pods from an API server.
func (r rule) inCluster(mark Mark, condition string) rule {
	r.cluster = &Outcome{mark, condition}
	return r
}

// forBound returns the rule as it is for a pod that an API server has bound to the node: what an API server, a scheduler or a controller acts on works there,
// unless the rule says that it does not.
func (r rule) forBound() rule {
	if r.scope == Cluster || r.scope == ControlPlane {
		if r.condition = r.bound; r.bound == "" {
			r.mark = Works
		}
	}
	if r.cluster != nil {
		r.mark, r.condition = r.cluster.Mark, r.cluster.Condition
	}
	return r
}

// table lists all rules.
func table() []rule {
	return slices.Concat(metadataRules(), podRules(), schedulingRules(), securityRules(), containerRules(), environmentRules(), probeRules(), volumeRules())
}

// rules finds the rule of a path.
type rules struct {
	exact, subtrees map[string]*rule
}

// index is made once: it never changes. Two rules of one path are a mistake in the table, which a test finds.
var index = sync.OnceValue(func() rules {
	ix := rules{exact: map[string]*rule{}, subtrees: map[string]*rule{}}
	list := table()
	for i := range list {
		for _, pattern := range list[i].paths {
			for _, path := range expand(pattern) {
				if root, whole := strings.CutSuffix(path, subtree); whole {
					ix.subtrees[root] = &list[i]
				} else {
					ix.exact[path] = &list[i]
				}
			}
		}
	}
	return ix
})

// find returns the rule of a path, nil where it has none.
func (ix rules) find(path string) *rule {
	r, _ := ix.findRoot(path)
	return r
}

// findRoot returns the rule of a path and the path that the rule names: this one, or that of the subtree that it is in.
func (ix rules) findRoot(path string) (r *rule, root string) {
	if r := ix.exact[path]; r != nil {
		return r, path
	}
	for end := len(path); end > 0; end-- {
		if end < len(path) && path[end] != '.' && path[end] != '[' {
			continue
		}
		if r := ix.subtrees[path[:end]]; r != nil {
			return r, path[:end]
		}
	}
	return nil, ""
}

// expand writes {a,b} out, at every place; the choices may hold braces, too.
func expand(pattern string) []string {
	open := strings.IndexByte(pattern, '{')
	if open < 0 {
		return []string{pattern}
	}
	var choices []string
	depth, begin, end := 0, open+1, len(pattern)
	for i := open; i < len(pattern) && end == len(pattern); i++ {
		switch pattern[i] {
		case '{':
			depth++
		case '}':
			depth--
		}
		if depth == 1 && pattern[i] == ',' || depth == 0 {
			choices = append(choices, pattern[begin:i])
			begin = i + 1
		}
		if depth == 0 {
			end = i
		}
	}
	var out []string
	for _, choice := range choices {
		out = append(out, expand(pattern[:open]+choice+pattern[min(end+1, len(pattern)):])...)
	}
	return out
}
