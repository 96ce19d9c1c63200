package arch

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/berthd/berth/test/images"
)

// source is one file of this module.
type source struct {
	// pkg is the folder's path in the module.
	pkg  string
	path string
	test bool
	file *ast.File
	fset *token.FileSet
}

// sources returns every Go file of the module, which is parsed once for all tests.
func sources(t *testing.T) []source {
	t.Helper()
	all, err := ofThisModule()
	if err != nil {
		t.Fatal(err)
	}
	return all
}

var ofThisModule = sync.OnceValues(func() ([]source, error) {
	root, err := images.Root()
	if err != nil {
		return nil, err
	}
	return parse(root)
})

// parse parses every Go file of the module in a folder. It does so by itself, without the go
// command, so that the test cache sees what it reads.
func parse(root string) ([]source, error) {
	fset := token.NewFileSet()
	var all []source
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if path != root &&
				(strings.HasPrefix(d.Name(), ".") || slices.Contains([]string{"bin", "dist", "testdata"}, d.Name())) {
				return fs.SkipDir
			}
			if _, err := os.Stat(filepath.Join(path, "go.mod")); err == nil && path != root {
				return fs.SkipDir // a module of its own weighs on nobody
			}
			return nil
		}
		if !strings.HasSuffix(path, ".go") {
			return nil
		}
		file, err := parser.ParseFile(fset, path, nil, parser.ParseComments)
		if err != nil {
			return err
		}
		pkg, err := filepath.Rel(root, filepath.Dir(path))
		if err != nil {
			return err
		}
		all = append(all, source{
			pkg:  pkg,
			path: path,
			test: strings.HasSuffix(path, "_test.go"),
			file: file,
			fset: fset,
		})
		return nil
	})
	return all, err
}

func checkout(t *testing.T) string {
	t.Helper()
	root, err := images.Root()
	if err != nil {
		t.Fatal(err)
	}
	return root
}

// at returns where a node is, for a message.
func (s source) at(n ast.Node) string { return s.fset.Position(n.Pos()).String() }

func (s source) imports(t *testing.T) []string {
	t.Helper()
	var paths []string
	for _, spec := range s.file.Imports {
		p, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			t.Fatal(err)
		}
		paths = append(paths, p)
	}
	return paths
}

func TestKubernetesImports(t *testing.T) {
	for _, s := range sources(t) {
		for _, imported := range s.imports(t) {
			if under(imported, []string{"k8s.io/kubernetes"}) && !slices.Contains(kubernetes, imported) {
				t.Errorf("%s imports %s", s.path, imported)
			}
		}
	}
}

func TestOnlyContainerdsPackagesKnowContainerd(t *testing.T) {
	known := false
	for _, s := range sources(t) {
		for _, imported := range s.imports(t) {
			switch {
			case !under(imported, containerds):
			case s.pkg == "cri/containerd":
				known = true
			case top(s.pkg) != "test" && !under(s.pkg, []string{"cri/native", "cri/internal/store"}):
				t.Errorf("%s imports %s", s.path, imported)
			}
		}
	}
	if !known {
		t.Error("cri/containerd does not import containerd: this test looks at the wrong thing")
	}
}

func TestAgentLinksNothingHeavy(t *testing.T) {
	// The parsed sources and go.mod decide the answer, so the test cache must see them read.
	sources(t)
	root := checkout(t)
	if _, err := os.ReadFile(filepath.Join(root, "go.mod")); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "go", "list", "-deps", "./cmd/berth")
	cmd.Dir = root
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("list what the agent links: %v", err)
	}
	packages := strings.Fields(string(out))
	if !slices.Contains(packages, module+"agent") {
		t.Error("the agent does not link its own package: this test looks at the wrong thing")
	}
	for _, p := range packages {
		if under(p, unlinked) {
			t.Errorf("the agent links %s (go mod why %s)", p, p)
		}
	}
}

func TestEveryPackageHasADoc(t *testing.T) {
	documented := map[string]bool{}
	names := map[string]string{}
	for _, s := range sources(t) {
		if s.test {
			continue
		}
		names[s.pkg] = s.file.Name.Name
		if s.file.Doc != nil {
			documented[s.pkg] = true
			if text := s.file.Doc.Text(); !strings.HasPrefix(text, "Package "+s.file.Name.Name) &&
				!strings.HasPrefix(text, "Command ") {
				t.Errorf("%s: the package doc begins %.40q", s.path, text)
			}
		}
	}
	for pkg := range names {
		if !documented[pkg] {
			t.Errorf("package %s has no doc", pkg)
		}
	}
}

func TestNoHiddenControlFlow(t *testing.T) {
	exits := map[string][]string{
		"os":  {"Exit"},
		"log": {"Fatal", "Fatalf", "Fatalln", "Panic", "Panicf", "Panicln"},
	}
	for _, s := range sources(t) {
		ast.Inspect(s.file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				if n.Name.Name == "init" && n.Recv == nil {
					t.Errorf("%s: init function", s.at(n))
				}
			case *ast.SelectorExpr:
				pkg, ok := n.X.(*ast.Ident)
				if !ok || !slices.Contains(exits[pkg.Name], n.Sel.Name) || mayExit(s) {
					return true
				}
				t.Errorf("%s: %s.%s outside main", s.at(n), pkg.Name, n.Sel.Name)
			}
			return true
		})
	}
}

// A node that routes packets for 127.0.0.0/8 from its network lets neighbours reach what listens on
// loopback only (CVE-2020-8558): nothing here ever says so.
func TestLoopbackIsNotRouted(t *testing.T) {
	for _, s := range sources(t) {
		ast.Inspect(s.file, func(n ast.Node) bool {
			if lit, ok := n.(*ast.BasicLit); ok && !s.test && strings.Contains(lit.Value, "route_localnet") {
				t.Errorf("%s: %s", s.at(n), lit.Value)
			}
			return true
		})
	}
}

// mayExit tells whether a file may end the process: a command may, and so may TestMain.
func mayExit(s source) bool { return s.file.Name.Name == "main" || s.test }

func TestExportedNamesAreDocumented(t *testing.T) {
	for _, s := range sources(t) {
		if s.test {
			continue
		}
		for _, decl := range s.file.Decls {
			switch d := decl.(type) {
			case *ast.FuncDecl:
				if d.Name.IsExported() && exportedReceiver(d) && d.Doc == nil {
					t.Errorf("%s: %s has no doc", s.at(d), d.Name.Name)
				}
			case *ast.GenDecl:
				for _, name := range undocumented(d) {
					t.Errorf("%s: %s has no doc", s.at(name), name.Name)
				}
			}
		}
	}
}

// exportedReceiver tells whether a function has no receiver or one of an exported type.
func exportedReceiver(d *ast.FuncDecl) bool {
	if d.Recv == nil {
		return true
	}
	exported := false
	ast.Inspect(d.Recv.List[0].Type, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok && !exported {
			exported = id.IsExported()
			return false
		}
		return true
	})
	return exported
}

// undocumented returns the exported names of a declaration without a doc. A comment on a block of
// constants or variables is one for all of them.
func undocumented(d *ast.GenDecl) []*ast.Ident {
	var names []*ast.Ident
	for _, spec := range d.Specs {
		switch sp := spec.(type) {
		case *ast.TypeSpec:
			if sp.Name.IsExported() && sp.Doc == nil && d.Doc == nil {
				names = append(names, sp.Name)
			}
		case *ast.ValueSpec:
			for _, n := range sp.Names {
				if n.IsExported() && sp.Doc == nil && sp.Comment == nil && d.Doc == nil {
					names = append(names, n)
				}
			}
		}
	}
	return names
}
