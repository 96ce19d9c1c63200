package fields

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"

	"github.com/berthd/berth/test/images"
)

// testCode is the tests of a package, whatever their build tags are.
type testCode struct {
	// decls are the package-level functions, constants and variables of the test files.
	decls map[string]ast.Node
	// scripts are the scenarios, by their path in testdata without the extension.
	scripts map[string]string
}

// readTests parses the tests of the package in a folder.
func readTests(t *testing.T, dir string) testCode {
	t.Helper()
	out := testCode{map[string]ast.Node{}, map[string]string{}}
	for _, path := range glob(t, dir, "*_test.go") {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			out.declare(d)
		}
	}
	testdata := filepath.Join(dir, "testdata")
	for _, path := range append(glob(t, testdata, "*.txtar"), glob(t, testdata, "*/*.txtar")...) {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		name, err := filepath.Rel(testdata, path)
		if err != nil {
			t.Fatal(err)
		}
		out.scripts[strings.TrimSuffix(filepath.ToSlash(name), ".txtar")] = string(text)
	}
	return out
}

func glob(t *testing.T, dir, pattern string) []string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, pattern))
	if err != nil {
		t.Fatal(err)
	}
	return paths
}

func (c testCode) declare(d ast.Decl) {
	switch d := d.(type) {
	case *ast.FuncDecl:
		c.decls[d.Name.Name] = d
	case *ast.GenDecl:
		for _, s := range d.Specs {
			if values, ok := s.(*ast.ValueSpec); ok {
				for i, value := range values.Values {
					c.decls[values.Names[i].Name] = value
				}
			}
		}
	}
}

// words are the names that a test sets, in lower case.
type words map[string]bool

// wordsOf returns what a test sets, or a case of it if there is a name. What counts as set are keys
// of YAML in the test's texts, and fields in Go's composite literals and assignments: in the test,
// and in what it uses of the test files. What other cases of the same test set does not count.
func (c testCode) wordsOf(test, name string) (words, error) {
	decl := c.decls[test]
	if decl == nil {
		return nil, fmt.Errorf("there is no test %s", test)
	}
	w := &collector{code: c, seen: map[ast.Node]bool{}, out: words{}}
	if name == "" {
		w.walk(decl)
		return w.out, nil
	}
	if script, ok := c.scripts[name]; ok {
		for _, f := range txtar.Parse([]byte(script)).Files {
			w.text(string(f.Data))
		}
		return w.out, nil
	}
	f := finder{code: c, name: name, seen: map[ast.Node]bool{}}
	f.find(decl, nil)
	if f.value == nil {
		return nil, fmt.Errorf("%s has no case %q", test, name)
	}
	w.walk(f.value)
	switch f.value.(type) {
	case *ast.Ident, *ast.FuncLit, *ast.CallExpr:
	default: // a row of a table: the code around it sets fields, too
		w.seen[f.table] = true
		w.walk(decl)
	}
	return w.out, nil
}

// finder looks for a case: the value of a key in a map, a function that t.Run runs, or a row whose
// first field is the name.
type finder struct {
	code         testCode
	name         string
	seen         map[ast.Node]bool
	value, table ast.Node
}

func (f *finder) find(n, table ast.Node) {
	if f.seen[n] {
		return
	}
	f.seen[n] = true
	ast.Inspect(n, func(n ast.Node) bool {
		if f.value != nil {
			return false
		}
		switch n := n.(type) {
		case *ast.CompositeLit:
			if n != table {
				for _, e := range n.Elts {
					if f.isName(e) {
						f.value, f.table = n, table
						return false
					}
				}
				f.find(n, n)
				return false
			}
		case *ast.KeyValueExpr:
			if f.isName(n.Key) {
				f.value, f.table = n.Value, table
			}
		case *ast.CallExpr:
			if s, ok := n.Fun.(*ast.SelectorExpr); ok && s.Sel.Name == "Run" && len(n.Args) == 2 && f.isName(n.Args[0]) {
				f.value = n.Args[1]
			}
		case *ast.Ident:
			if d := f.code.decls[n.Name]; d != nil {
				f.find(d, nil)
			}
		}
		return true
	})
}

func (f *finder) isName(e ast.Node) bool {
	if kv, ok := e.(*ast.KeyValueExpr); ok {
		if key, ok := kv.Key.(*ast.Ident); !ok || key.Name != "name" {
			return false
		}
		e = kv.Value
	}
	text, ok := literal(e)
	return ok && text == f.name
}

func literal(n ast.Node) (string, bool) {
	if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
		text, err := strconv.Unquote(lit.Value)
		return text, err == nil
	}
	return "", false
}

// collector collects words.
type collector struct {
	code testCode
	seen map[ast.Node]bool
	out  words
}

func (w *collector) walk(n ast.Node) {
	ast.Inspect(n, func(n ast.Node) bool {
		if n == nil || w.seen[n] {
			return false
		}
		switch n := n.(type) {
		case *ast.FuncDecl, *ast.CompositeLit:
			w.seen[n] = true
		case *ast.BasicLit:
			if text, ok := literal(n); ok {
				w.text(text)
			}
		case *ast.KeyValueExpr:
			w.expr(n.Key)
		case *ast.AssignStmt:
			for _, to := range n.Lhs {
				w.expr(to)
			}
		case *ast.Ident:
			if d := w.code.decls[n.Name]; d != nil && !w.seen[d] {
				w.walk(d)
				w.seen[d] = true
			}
		}
		return true
	})
}

// expr collects the names in what is assigned to: p.Spec.Containers[0].Image sets all four.
func (w *collector) expr(e ast.Expr) {
	switch e := e.(type) {
	case *ast.Ident:
		w.out[strings.ToLower(e.Name)] = true
	case *ast.SelectorExpr:
		w.expr(e.X)
		name := strings.ToLower(e.Sel.Name)
		w.out[name] = true
		w.out[strings.TrimPrefix(name, "resource")] = true // v1.ResourceCPU as a key
	case *ast.IndexExpr:
		w.expr(e.X)
		w.expr(e.Index)
	case *ast.BasicLit:
		if text, ok := literal(e); ok {
			w.out[strings.ToLower(text)] = true
		}
	}
}

// yamlKey finds keys of YAML, and quantities by name such as memory=1Gi.
var yamlKey = regexp.MustCompile("([A-Za-z][A-Za-z0-9_./-]*)(?:['\"]?:(?:\\s|$|\")|=[0-9])")

func (w *collector) text(text string) {
	for _, m := range yamlKey.FindAllStringSubmatch(text, -1) {
		w.out[strings.ToLower(m[1])] = true
	}
}

// missing returns the names in a path that the words do not have. A map's key ending in * stands
// for any key with the same beginning.
func (w words) missing(path string) (out []string) {
	path = strings.ToLower(strings.ReplaceAll(path, "[*]", ""))
	var names []string
	if at := strings.IndexByte(path, '['); at >= 0 {
		names = append(names, strings.TrimSuffix(path[at+1:], "]"))
		path = path[:at]
	}
	names = append(names, strings.Split(path, ".")[1:]...)
	for _, name := range names {
		if !w.has(name) {
			out = append(out, name)
		}
	}
	return out
}

func (w words) has(name string) bool {
	prefix, open := strings.CutSuffix(name, "*")
	if !open {
		return w[name]
	}
	for word := range w {
		if strings.HasPrefix(word, prefix) {
			return true
		}
	}
	return false
}

// TestEveryClaimHasATest fails if a mark's test does not exist, or if the test of a field that
// works does not set the field: every name in the field's path must be set by that very test.
func TestEveryClaimHasATest(t *testing.T) {
	root, err := images.Root()
	if err != nil {
		t.Fatal(err)
	}
	packages, tests := map[string]testCode{}, map[string]words{}
	for _, f := range All() {
		pkg, name, ok := strings.Cut(f.Test, "/Test")
		if !ok {
			t.Fatalf("%s: %q is not PACKAGE/TestNAME", f.Path, f.Test)
		}
		set, known := tests[f.Test]
		if !known {
			code, known := packages[pkg]
			if !known {
				code = readTests(t, filepath.Join(root, pkg))
				packages[pkg] = code
			}
			name, testCase, _ := strings.Cut("Test"+name, "/")
			if set, err = code.wordsOf(name, testCase); err != nil {
				t.Errorf("%s: %s: %v", f.Path, pkg, err)
			}
			tests[f.Test] = set
		}
		if !f.leaf || f.Mark != Works && f.Mark != WorksWhere {
			continue
		}
		if missing := set.missing(f.Path); len(missing) > 0 {
			t.Errorf("%s: %s does not set %s", f.Path, f.Test, strings.Join(missing, ", "))
		}
	}
}

// TestWhatCountsAsSet checks that a case has the words of what it uses, and not those of the cases
// beside it.
func TestWhatCountsAsSet(t *testing.T) {
	const source = `package p
const shared = "containers:\n  - {name: main, tty: true}\n"
func TestPods(t *T) {
	run(t, tests{"one": one, "two": two})
	t.Run("three", func(t *T) { put("stdin: true # terminationMessagePath") })
}
func one(t *T) { put(shared + "    env: [{name: A, value: b}]") }
func two(t *T) { p.Spec.Containers[0].WorkingDir = helper() }
func helper() string { return "spec: {hostname: x}" }
func TestTable(t *T) {
	for _, c := range map[string]row{"a": {pod: Pod{Hostname: "h"}}, "b": {pod: Pod{Subdomain: "s"}}} {
		c.pod.Spec.NodeName = "requests memory=1Gi"
	}
}`
	file, err := parser.ParseFile(token.NewFileSet(), "p_test.go", source, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	code := testCode{map[string]ast.Node{}, map[string]string{
		"dir/script": "expect tty\n-- a.yaml --\nspec: {stdin: true}\n",
	}}
	for _, d := range file.Decls {
		code.declare(d)
	}
	for _, c := range []struct{ test, name, has, hasNot string }{
		{"TestPods", "one", "containers name tty env value", "stdin workingdir hostname"},
		{"TestPods", "two", "spec containers workingdir hostname", "tty env stdin"},
		{"TestPods", "three", "stdin", "tty env hostname terminationmessagepath"},
		{"TestPods", "", "containers env stdin workingdir hostname", "subdomain"},
		{"TestPods", "dir/script", "spec stdin", "tty"},
		{"TestTable", "a", "hostname nodename memory", "subdomain"},
		{"TestTable", "b", "subdomain nodename", "hostname"},
	} {
		got, err := code.wordsOf(c.test, c.name)
		if err != nil {
			t.Errorf("%s/%s: %v", c.test, c.name, err)
		}
		for word := range strings.FieldsSeq(c.has) {
			if !got[word] {
				t.Errorf("%s/%s does not have %s: %v", c.test, c.name, word, got)
			}
		}
		for word := range strings.FieldsSeq(c.hasNot) {
			if got[word] {
				t.Errorf("%s/%s has %s: %v", c.test, c.name, word, got)
			}
		}
	}
	for _, c := range [][2]string{{"TestPods", "four"}, {"TestNone", ""}, {"TestTable", "s"}} {
		if _, err := code.wordsOf(c[0], c[1]); err == nil {
			t.Errorf("%s/%s is there", c[0], c[1])
		}
	}
	if got := (words{"spec": true, "resources": true, "hugepages-2mi": true}).missing(
		"spec.resources.limits[hugepages-*]"); len(got) != 1 || got[0] != "limits" {
		t.Errorf("missing %v", got)
	}
}
