package docs

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"maps"
	"slices"
	"strings"
	"testing"

	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	v1 "k8s.io/api/core/v1"
)

// recording are the calls that record an event, by the function's name and how many arguments it
// has: which of them are the type and the reason; -1 is Warning.
var recording = map[string]struct{ kind, reason int }{
	"Pod/5":       {2, 3},
	"Events/5":    {2, 3},
	"Event/5":     {2, 3},
	"PodEvent/5":  {2, 3},
	"Node/3":      {0, 1},
	"Annotated/5": {2, 3},
	"event/4":     {1, 2},
	"event/3":     {-1, 1},
	"Event/3":     {0, 1},
	"refuse/6":    {-1, 4},
}

// denied and failed are a signer's refusals.
const (
	denied = certificatesv1beta1.PodCertificateRequestConditionTypeDenied
	failed = certificatesv1beta1.PodCertificateRequestConditionTypeFailed
)

// computed are the files in which a reason is no constant, with those that it can be. What a pod is
// refused with is the event's reason, too, and not listed; a function that only passes a reason on
// adds none.
var computed = map[string]map[string]string{
	"agent/agent.go": {
		"CheckLimitsForResolvConf": v1.EventTypeWarning, "PossibleMemoryBackedVolumesOnDisk": v1.EventTypeWarning,
	},
	"agent/pod/resize.go": {
		"Resize" + v1.PodReasonDeferred: v1.EventTypeWarning, "Resize" + v1.PodReasonInfeasible: v1.EventTypeWarning,
	},
	"agent/pod/stages.go":            {"DeadlineExceeded": v1.EventTypeNormal},
	"agent/pod/sync.go":              {},
	"agent/pod/steps/sandbox.go":     {"DNSConfigForming": v1.EventTypeWarning, "MissingClusterDNS": v1.EventTypeWarning},
	"agent/pod/steps/admit.go":       {},
	"agent/pod/steps/volumes.go":     {"FailedMount": v1.EventTypeWarning, "FailedMapVolume": v1.EventTypeWarning},
	"agent/volumes/manager.go":       {},
	"agent/cluster/podcerts/keep.go": {denied: v1.EventTypeWarning, failed: v1.EventTypeWarning},
	"agent/images/ensure.go":         {},
	"agent/cluster/noderegistry/registry.go": {
		"NodeReady": v1.EventTypeNormal, "NodeNotReady": v1.EventTypeNormal,
		"NodeSchedulable": v1.EventTypeNormal, "NodeNotSchedulable": v1.EventTypeNormal,
		"NodeHasSufficientMemory": v1.EventTypeNormal, "NodeHasInsufficientMemory": v1.EventTypeNormal,
		"NodeHasNoDiskPressure": v1.EventTypeNormal, "NodeHasDiskPressure": v1.EventTypeNormal,
		"NodeHasSufficientPID": v1.EventTypeNormal, "NodeHasInsufficientPID": v1.EventTypeNormal,
	},
	"agent/volumes/expand/expander.go": {
		"FileSystemResizeFailed": v1.EventTypeWarning, "FileSystemResizeSuccessful": v1.EventTypeNormal,
	},
	"probes/worker.go": {},
}

// emitted returns the reasons of the events that the code records, each with its types. It fails
// for a reason that nothing here knows.
func emitted(t *testing.T) map[string]map[string]bool {
	t.Helper()
	known := constants(t, "agent")
	maps.Copy(known, constants(t, "probes"))
	reasons, open := map[string]map[string]bool{}, map[string]bool{}
	add := func(kind, reason string) {
		if reasons[reason] == nil {
			reasons[reason] = map[string]bool{}
		}
		reasons[reason][kind] = true
	}
	for _, folder := range []string{"agent", "probes"} {
		eachNamed(t, folder, func(path string, file *ast.File) {
			ast.Inspect(file, func(n ast.Node) bool {
				call, ok := n.(*ast.CallExpr)
				if !ok {
					return true
				}
				at, ok := recording[called(call)]
				if !ok {
					return true
				}
				kind := v1.EventTypeWarning
				if at.kind >= 0 {
					kind = joined(call.Args[at.kind], known)
				}
				if reason := call.Args[at.reason]; whole(reason, known) && kind != "" {
					add(kind, joined(reason, known))
				} else {
					open[path] = true
					if computed[path] == nil {
						t.Errorf("%s records events whose reason %s is no constant: say in computed which they are",
							path, types.ExprString(reason))
					}
				}
				return true
			})
		})
	}
	for path, list := range computed {
		if !open[path] {
			t.Errorf("%s records no event any more whose reason is no constant", path)
		}
		for reason, kind := range list {
			add(kind, reason)
		}
	}
	return reasons
}

// called names the function of a call that may record an event, with the number of its arguments;
// Pod and Node are also the names of others.
func called(call *ast.CallExpr) string {
	f, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return ""
	}
	name := f.Sel.Name
	if (name == "Pod" || name == "Node") && !strings.HasSuffix(strings.ToLower(types.ExprString(f.X)), "events") {
		return ""
	}
	return fmt.Sprintf("%s/%d", name, len(call.Args))
}

// whole reports whether an expression is a string of literals and known constants alone.
func whole(e ast.Expr, constants map[string]string) bool {
	switch e := e.(type) {
	case *ast.BasicLit:
		return e.Kind == token.STRING
	case *ast.SelectorExpr:
		return constants[e.Sel.Name] != "" && ast.IsExported(e.Sel.Name) && !strings.HasSuffix(e.Sel.Name, "eason")
	case *ast.Ident:
		return constants[e.Name] != ""
	case *ast.BinaryExpr:
		return whole(e.X, constants) && whole(e.Y, constants)
	}
	return false
}

// TestComputedReasonsExist: what is said to be computed from literals is in the code.
func TestComputedReasonsExist(t *testing.T) {
	// of the API's constants
	found := map[string]bool{
		"Resize" + v1.PodReasonDeferred: true, "Resize" + v1.PodReasonInfeasible: true, denied: true, failed: true,
	}
	literals(t, func(s string) { found[s] = true })
	for path, list := range computed {
		for reason := range list {
			if !found[reason] {
				t.Errorf("%s: no code has the reason %s", path, reason)
			}
		}
	}
}

// eventsReference has the reasons of the events.
func eventsReference(t *testing.T, b *bytes.Buffer) {
	t.Helper()
	reasons := emitted(t)
	for _, reason := range []string{
		"FailedMount", "Killing", "Unhealthy", "SystemOOM", "FailedValidation", "ResizeDeferred",
	} {
		if reasons[reason] == nil {
			t.Errorf("no code records %s: are events still found?", reason)
		}
	}
	b.WriteString("\n## Events\n\nThe reasons are those of Kubernetes. The event of a refused pod has the reason of " +
		"the refusal.\n\n| Reason | Type |\n|---|---|\n")
	for _, reason := range slices.Sorted(maps.Keys(reasons)) {
		fmt.Fprintf(b, "| `%s` | %s |\n", reason, strings.Join(slices.Sorted(maps.Keys(reasons[reason])), ", "))
	}
}
