package admit

import (
	"testing"

	v1 "k8s.io/api/core/v1"
)

func TestNodeAffinity(t *testing.T) {
	node := Node{
		Name:   "box",
		Labels: map[string]string{v1.LabelOSStable: "linux", v1.LabelHostname: "box", "disk": "ssd", "cores": "4"},
	}
	expression := func(key string, op v1.NodeSelectorOperator, values ...string) v1.NodeSelectorRequirement {
		return v1.NodeSelectorRequirement{Key: key, Operator: op, Values: values}
	}
	term := func(e ...v1.NodeSelectorRequirement) v1.NodeSelectorTerm {
		return v1.NodeSelectorTerm{MatchExpressions: e}
	}
	for name, c := range map[string]struct {
		selector map[string]string
		// terms are requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms: one of them
		// must match.
		terms   []v1.NodeSelectorTerm
		refused bool
	}{
		"nothing asked":            {},
		"selector":                 {selector: map[string]string{"disk": "ssd", v1.LabelOSStable: "linux"}},
		"another value":            {selector: map[string]string{"disk": "tape"}, refused: true},
		"another operating system": {selector: map[string]string{v1.LabelOSStable: "windows"}, refused: true},
		"no such label":            {selector: map[string]string{"gpu": "yes"}, refused: true},
		"expression": {terms: []v1.NodeSelectorTerm{term(expression("disk", v1.NodeSelectorOpIn,
			"hdd", "ssd"))}},
		"one of two terms": {
			terms: []v1.NodeSelectorTerm{
				term(expression("disk", v1.NodeSelectorOpIn, "hdd")),
				term(expression("cores", v1.NodeSelectorOpGt, "2")),
			},
		},
		"one of two expressions": {
			terms: []v1.NodeSelectorTerm{term(expression("disk", v1.NodeSelectorOpExists),
				expression("cores", v1.NodeSelectorOpLt, "4"))},
			refused: true,
		},
		"not there": {terms: []v1.NodeSelectorTerm{term(expression("gpu", v1.NodeSelectorOpDoesNotExist),
			expression("disk", v1.NodeSelectorOpNotIn, "hdd"))}},
		"matchFields": {
			terms: []v1.NodeSelectorTerm{{MatchFields: []v1.NodeSelectorRequirement{expression("metadata.name",
				v1.NodeSelectorOpIn, "box")}}},
		},
		"another node": {
			terms: []v1.NodeSelectorTerm{{MatchFields: []v1.NodeSelectorRequirement{expression("metadata.name",
				v1.NodeSelectorOpIn, "bax")}}},
			refused: true,
		},
		"no terms": {terms: []v1.NodeSelectorTerm{}, refused: true},
		"unreadable": {
			terms: []v1.NodeSelectorTerm{term(expression("cores", v1.NodeSelectorOpGt, "many"))}, refused: true,
		},
		"selector and terms": {
			selector: map[string]string{"disk": "ssd"},
			terms:    []v1.NodeSelectorTerm{term(expression("disk", v1.NodeSelectorOpIn, "hdd"))},
			refused:  true,
		},
	} {
		p := pod()
		p.Spec.NodeSelector = c.selector
		if c.terms != nil {
			p.Spec.Affinity = &v1.Affinity{NodeAffinity: &v1.NodeAffinity{
				RequiredDuringSchedulingIgnoredDuringExecution: &v1.NodeSelector{NodeSelectorTerms: c.terms},
			}}
		}
		r := Check(Input{Pod: p, Node: node})
		if (r != nil) != c.refused {
			t.Errorf("%s: %v", name, r)
		}
		if r != nil &&
			(r.Reason != "NodeAffinity" ||
				r.Message != "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector") {
			t.Errorf("%s: %+v", name, r)
		}
	}
	preferred := pod()
	preferred.Spec.Affinity = &v1.Affinity{NodeAffinity: &v1.NodeAffinity{}}
	preferred.Spec.Affinity.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution = []v1.PreferredSchedulingTerm{
		{Weight: 1, Preference: term(expression("gpu", v1.NodeSelectorOpExists))},
	}
	if r := Check(Input{Pod: preferred, Node: node}); r != nil {
		t.Errorf("a preference refuses: %+v", r)
	}
}
