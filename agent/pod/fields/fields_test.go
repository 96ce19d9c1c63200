package fields

import (
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
)

func TestEveryPathHasOneMark(t *testing.T) {
	for _, f := range All() {
		if f.Mark == "" || f.Scope == "" || f.Test == "" {
			t.Errorf("%s has no mark: add it to a rule in table*.go (%+v)", f.Path, f)
		}
		if (f.Condition == "") != (f.Mark == Works) {
			t.Errorf("%s: the mark is %q and the condition %q", f.Path, f.Mark, f.Condition)
		}
		if !slices.Contains(Marks(), f.Mark) || !slices.Contains(Scopes(), f.Scope) {
			t.Errorf("%s: unknown mark %q or scope %q", f.Path, f.Mark, f.Scope)
		}
	}
}

func TestEveryRuleIsOfUse(t *testing.T) {
	list := nodes()
	seen := map[string]bool{}
	for _, r := range table() {
		for _, pattern := range r.paths {
			for _, path := range expand(pattern) {
				if seen[path] {
					t.Errorf("two rules are about %s", path)
				}
				seen[path] = true
				root, whole := strings.CutSuffix(path, subtree)
				if !slices.ContainsFunc(list, func(n node) bool {
					if whole {
						return within(n.path, root) && index().find(n.path) == index().subtrees[root]
					}
					return n.path == path
				}) {
					t.Errorf("the rule of %s is about nothing", path)
				}
			}
		}
	}
}

// A field without effect is checked as a whole, so that a pod gets one finding for it. So no rule
// may make an exception below such a field.
func TestNoExceptionsBeneathWhatDoesNotWork(t *testing.T) {
	ix := index()
	for root, r := range ix.subtrees {
		if r.mark == Works || r.mark == WorksWhere {
			continue
		}
		for _, n := range nodes() {
			if within(n.path, root) && ix.find(n.path) != r {
				t.Errorf("%s is an exception beneath %s", n.path, root)
			}
		}
	}
}

func TestExpand(t *testing.T) {
	for pattern, want := range map[string]string{
		"a.b":             "a.b",
		"{a,b}.c":         "a.c b.c",
		"x{a,b[{c,d}]}.e": "xa.e xb[c].e xb[d].e",
		"{a,b}.{c,d}":     "a.c a.d b.c b.d",
	} {
		if got := strings.Join(expand(pattern), " "); got != want {
			t.Errorf("expand(%q) = %q, want %q", pattern, got, want)
		}
	}
}

// TestFromAPIServer checks that the matrix says which fields have another mark in pods from an API
// server, and that Check agrees.
func TestFromAPIServer(t *testing.T) {
	want := map[string]string{
		"spec.serviceAccountName":    "works",
		"spec.tolerations":           "works",
		"spec.priorityClassName":     "works",
		"metadata.generateName":      "works",
		"spec.restartPolicy":         "",
		"spec.volumes[*].flexVolume": "",
		"spec.volumes[*].gitRepo":    "",
		"spec.resourceClaims":        "works",
		"spec.volumes[*].persistentVolumeClaim": "works where: the API server's claim is bound to a volume of a kind " +
			"that this node mounts",
	}
	for _, f := range All() {
		if text, asked := want[f.Path]; asked {
			if got := f.APIServer.String(); got != text {
				t.Errorf("%s: got %q, want %q", f.Path, got, text)
			}
			delete(want, f.Path)
		}
		if f.APIServer != nil && f.Scope != Cluster && f.Scope != ControlPlane && index().find(f.Path).cluster == nil {
			t.Errorf("%s, of scope %s, has another mark in pods from an API server", f.Path, f.Scope)
		}
	}
	if len(want) > 0 {
		t.Errorf("not found: %v", want)
	}
	pod := &v1.Pod{Spec: v1.PodSpec{ServiceAccountName: "s", ResourceClaims: []v1.PodResourceClaim{{Name: "c"}}}}
	if got := Refusals(pod, true); len(got) != 0 {
		t.Errorf("bound: %v", got)
	}
	if got := Refusals(pod, false); len(got) != 2 {
		t.Errorf("of a manifest: %v", got)
	}
	if c := Count(); c.APIServer[Works] <= c.Total[Works] || c.APIServer[Refused] >= c.Total[Refused] {
		t.Errorf("figures: %v, in pods from an API server %v", c.Total, c.APIServer)
	}
}
