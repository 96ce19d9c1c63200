package fields

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/berthd/berth/test/images"
)

// evidence is what is known of a package's tests: the names of the test functions, the names of
// their cases, and all their text in lower case.
type evidence struct {
	tests, cases map[string]bool
	text         string
}

// readEvidence parses the tests of the package in a folder, whatever their build tags are.
// Scenarios are cases, too.
func readEvidence(t *testing.T, dir string) evidence {
	t.Helper()
	out := evidence{tests: map[string]bool{}, cases: map[string]bool{}}
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	testdata := filepath.Join(dir, "testdata")
	for _, pattern := range []string{"*.txtar", "*/*.txtar"} {
		scripts, err := filepath.Glob(filepath.Join(testdata, pattern))
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, scripts...)
	}
	for _, path := range files {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		out.text += strings.ToLower(string(text))
		if strings.HasSuffix(path, ".go") {
			out.parse(t, path, text)
		} else {
			name, err := filepath.Rel(testdata, path)
			if err != nil {
				t.Fatal(err)
			}
			out.cases[strings.TrimSuffix(filepath.ToSlash(name), ".txtar")] = true
		}
	}
	return out
}

func (e evidence) parse(t *testing.T, path string, text []byte) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), path, text, 0)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			if n.Recv == nil && strings.HasPrefix(n.Name.Name, "Test") {
				e.tests[n.Name.Name] = true
			}
		case *ast.BasicLit:
			if n.Kind == token.STRING {
				if value, err := strconv.Unquote(n.Value); err == nil {
					e.cases[value] = true
				}
			}
		}
		return true
	})
}

// TestEveryClaimHasATest fails if a mark's test does not exist, or if the tests of its package
// never mention the field.
func TestEveryClaimHasATest(t *testing.T) {
	root, err := images.Root()
	if err != nil {
		t.Fatal(err)
	}
	packages := map[string]evidence{}
	for _, f := range All() {
		pkg, name, ok := strings.Cut(f.Test, "/Test")
		if !ok {
			t.Fatalf("%s: %q is not PACKAGE/TestNAME", f.Path, f.Test)
		}
		name, testCase, _ := strings.Cut("Test"+name, "/")
		e, known := packages[pkg]
		if !known {
			e = readEvidence(t, filepath.Join(root, pkg))
			packages[pkg] = e
		}
		switch {
		case !e.tests[name]:
			t.Errorf("%s: there is no test %s in %s", f.Path, name, pkg)
		case testCase != "" && !e.cases[testCase]:
			t.Errorf("%s: %s in %s has no case %q", f.Path, name, pkg, testCase)
		case (f.Mark == Works || f.Mark == WorksWhere) && f.leaf && !strings.Contains(e.text, spoken(f.Path)):
			t.Errorf("%s: the tests of %s never say %s", f.Path, pkg, spoken(f.Path))
		}
	}
}

// spoken returns the word that tests use for a field, in lower case: its name, or a map's key
// without the * at its end.
func spoken(path string) string {
	path = strings.TrimSuffix(path, "[*]")
	if key, ok := strings.CutSuffix(path, "]"); ok {
		return strings.ToLower(strings.TrimSuffix(key[strings.LastIndexByte(key, '[')+1:], "*"))
	}
	return strings.ToLower(path[strings.LastIndexByte(path, '.')+1:])
}
