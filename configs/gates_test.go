package configs

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	utilfeature "k8s.io/apiserver/pkg/util/feature"

	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/component-helpers/nodedeclaredfeatures/features/inplacepodresize"
	"k8s.io/component-helpers/nodedeclaredfeatures/features/restartallcontainers"

	// This import registers the gates of every component of the linked release.
	_ "k8s.io/kubernetes/pkg/apis/core/validation"
)

// TestOwnGates checks that ownGates has exactly the gates whose names the code of berth has, as
// text or by upstream's constants.
func TestOwnGates(t *testing.T) {
	found := map[string]bool{}
	gates := func(exprs ...ast.Expr) {
		for _, e := range exprs {
			if text, ok := e.(*ast.BasicLit); ok {
				found[strings.Trim(text.Value, `"`)] = true
			}
		}
	}
	for _, dir := range []string{".", "../agent", "../cri", "../cmd", "../cgroups", "../probes"} {
		err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
			if err != nil {
				return err
			}
			ast.Inspect(file, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.CallExpr:
					if f, ok := n.Fun.(*ast.SelectorExpr); ok && (f.Sel.Name == "GateEnabled" || f.Sel.Name == "gate") {
						gates(n.Args...)
					}
				case *ast.ValueSpec:
					if strings.HasPrefix(n.Names[0].Name, "gate") {
						gates(n.Values...)
					}
				case *ast.SelectorExpr:
					found[map[string]string{
						"IPPRPodLevelResourcesFeatureGate":     inplacepodresize.IPPRPodLevelResourcesFeatureGate,
						"IPPRInitContainersFeatureGate":        inplacepodresize.IPPRInitContainersFeatureGate,
						"RestartAllContainersOnContainerExits": restartallcontainers.RestartAllContainersOnContainerExits,
					}[n.Sel.Name]] = true
				}
				return true
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	delete(found, "")
	if diff := cmp.Diff(slices.Sorted(maps.Keys(found)), ownGates()); diff != "" {
		t.Errorf("gates that the code names (-), and gates that count as its own (+):\n%s", diff)
	}
}

// TestKnownGatesAreTheReleases checks that gates.txt has the gates of the linked Kubernetes
// release. With UPDATE_GATES=1 it writes the file.
func TestKnownGatesAreTheReleases(t *testing.T) {
	var want strings.Builder
	// a kubelet's command adds the gates of logs at its start
	known := utilfeature.DefaultMutableFeatureGate.DeepCopy()
	if err := logsapi.AddFeatureGates(known); err != nil {
		t.Fatal(err)
	}
	all := known.GetAll()
	for _, name := range slices.Sorted(maps.Keys(all)) {
		spec := all[name]
		stage := string(spec.PreRelease)
		switch {
		case name == "AllAlpha" || name == "AllBeta":
			continue
		case stage == "":
			stage = "GA"
		}
		fmt.Fprintf(&want, "%s %t %s", name, spec.Default, stage)
		if spec.LockToDefault {
			want.WriteString(" locked")
		}
		want.WriteString("\n")
	}
	if os.Getenv("UPDATE_GATES") != "" {
		if err := os.WriteFile("gates.txt", []byte(want.String()), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if want.String() != gatesText {
		t.Errorf("gates.txt is not the release's list; run the test with UPDATE_GATES=1 and look at the difference")
	}
}
