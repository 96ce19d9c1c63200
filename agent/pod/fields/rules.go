package fields

import (
	"slices"
	"strings"
	"sync"
)

// subtree at the end of a rule's path means the path and everything below it.
const subtree = "..."

// rule is a claim about some paths. The most specific rule of a path is used: the one that names
// the path, otherwise the one with the longest subtree around it.
type rule struct {
	// paths are exact, or end in [subtree]. {a,b} stands for both.
	paths     []string
	mark      Mark
	condition string
	test      string
	scope     Scope
	// plain are values, as %v writes them, that need no warning: API defaults and the like. Only
	// for [NoEffect].
	plain []string
	// cluster is for a rule in the scope [Node]. It is what is right for pods from an API server,
	// if that is different.
	cluster *Outcome
}

// The tests of the marks of fields that do not work.
const (
	testWarned  = "agent/pod/fields/TestEveryFieldWithoutEffectIsToldOf"
	testRefused = "agent/pod/fields/TestEveryRefusedFieldIsRefused"
)

// works is the rule of fields that do what Kubernetes says.
func works(test string, paths ...string) rule {
	return rule{paths: paths, mark: Works, test: test, scope: Node}
}

// where is the rule of fields that work under a condition.
func where(condition, test string, paths ...string) rule {
	return rule{paths: paths, mark: WorksWhere, condition: condition, test: test, scope: Node}
}

// noEffect is the rule of fields that are accepted and have no effect.
func noEffect(scope Scope, why string, paths ...string) rule {
	return rule{paths: paths, mark: NoEffect, condition: why, test: testWarned, scope: scope}
}

// refused is the rule of fields with which a pod does not run.
func refused(scope Scope, why string, paths ...string) rule {
	return rule{paths: paths, mark: Refused, condition: why, test: testRefused, scope: scope}
}

// in sets the scope of a rule.
func (r rule) in(scope Scope) rule {
	r.scope = scope
	return r
}

// unless sets the values that need no warning.
func (r rule) unless(values ...string) rule {
	r.plain = values
	return r
}

// inCluster sets what is right for pods from an API server.
func (r rule) inCluster(mark Mark, condition string) rule {
	r.cluster = &Outcome{mark, condition}
	return r
}

// forAPI returns the rule for a pod from the API. A field that an API server, a scheduler or a
// controller acts on works in such a pod.
func (r rule) forAPI() rule {
	if r.scope == Cluster || r.scope == ControlPlane {
		r.mark, r.condition = Works, ""
	}
	if r.cluster != nil {
		r.mark, r.condition = r.cluster.Mark, r.cluster.Condition
	}
	return r
}

// table lists all rules.
func table() []rule {
	return slices.Concat(metadataRules(), podRules(), schedulingRules(), securityRules(), containerRules(),
		environmentRules(), probeRules(), volumeRules())
}

// rules finds the rule of a path.
type rules struct {
	exact, subtrees map[string]*rule
}

// index is made once and never changes. Two rules for one path are a mistake in the table, which a
// test finds.
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

// find returns the rule of a path, or nil.
func (ix rules) find(path string) *rule {
	r, _ := ix.findRoot(path)
	return r
}

// findRoot returns the rule of a path and the path that the rule names: this path, or the subtree
// around it.
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

// expand expands {a,b} at every place. The choices may contain braces, too.
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
