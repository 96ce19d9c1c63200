package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"slices"
	"strings"
)

// The names that the figures are about.
const (
	agentFolder = "agent"
	agentType   = "Agent"
)

// wideStructs are the packages whose structs may have many fields: they mirror a configuration
// file, a wire format or flags.
var wideStructs = []string{"configs", "client/api"}

// foreignInterfaces are interfaces of other modules with methods of many parameters. Who implements
// one cannot choose.
var foreignInterfaces = []string{"streaming.Runtime"}

// file is one parsed Go file.
type file struct {
	path   string
	text   []byte
	set    *token.FileSet
	tree   *ast.File
	test   bool
	folder string
}

// read parses the Go files of a checkout. It leaves out hidden folders, what was built, test data,
// modules of their own and generated files.
func read(checkout fs.FS) ([]file, error) {
	var all []file
	set := token.NewFileSet()
	err := fs.WalkDir(checkout, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			return enter(checkout, name)
		}
		if !strings.HasSuffix(name, ".go") {
			return nil
		}
		text, err := fs.ReadFile(checkout, name)
		if err != nil {
			return err
		}
		tree, err := parser.ParseFile(set, name, text, parser.ParseComments)
		if err != nil {
			return err
		}
		if !ast.IsGenerated(tree) {
			test := strings.HasSuffix(name, "_test.go") || strings.HasPrefix(name, "test/")
			all = append(all, file{path: name, text: text, set: set, tree: tree, test: test, folder: path.Dir(name)})
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read the Go files: %w", err)
	}
	return all, nil
}

// enter returns fs.SkipDir for a folder that is not measured.
func enter(checkout fs.FS, name string) error {
	if name == "." {
		return nil
	}
	base := path.Base(name)
	if strings.HasPrefix(base, ".") || slices.Contains([]string{"bin", "dist", "testdata"}, base) {
		return fs.SkipDir
	}
	if _, err := fs.Stat(checkout, path.Join(name, "go.mod")); err == nil {
		return fs.SkipDir
	}
	return nil
}

// lines returns how many lines a file has.
func (f file) lines() int { return bytes.Count(f.text, []byte("\n")) }

// span returns how many lines a node takes, the first and the last included.
func (f file) span(n ast.Node) int {
	return f.set.Position(n.End()).Line - f.set.Position(n.Pos()).Line + 1
}

// at returns the file and line of a node.
func (f file) at(n ast.Node) string {
	return fmt.Sprintf("%s:%d", f.path, f.set.Position(n.Pos()).Line)
}

// structs calls visit with each struct type that has a name.
func (f file) structs(visit func(spec *ast.TypeSpec, fields int)) {
	ast.Inspect(f.tree, func(n ast.Node) bool {
		if spec, ok := n.(*ast.TypeSpec); ok {
			if s, ok := spec.Type.(*ast.StructType); ok {
				visit(spec, count(s.Fields))
			}
		}
		return true
	})
}

// functions calls visit with each function and method that has a body.
func (f file) functions(visit func(decl *ast.FuncDecl)) {
	for _, d := range f.tree.Decls {
		if decl, ok := d.(*ast.FuncDecl); ok && decl.Body != nil {
			visit(decl)
		}
	}
}

// count returns how many names a list of fields or parameters declares. One without a name (an
// embedded field, an unnamed parameter) counts as one.
func count(list *ast.FieldList) int {
	if list == nil {
		return 0
	}
	n := 0
	for _, f := range list.List {
		n += max(1, len(f.Names))
	}
	return n
}

// receiver returns the name of the type that a method belongs to; empty for a function.
func receiver(decl *ast.FuncDecl) string {
	if decl.Recv == nil {
		return ""
	}
	name := ""
	ast.Inspect(decl.Recv.List[0].Type, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok && name == "" {
			name = id.Name
		}
		return true
	})
	return name
}

// nesting returns how many statements of control flow (if, for, switch, select) stand inside each
// other at the deepest place of a function, function literals included. An "else if" is as deep as
// its "if"; a case is as deep as its switch.
func nesting(n ast.Node) int {
	deepest := 0
	depth := 0
	var stack []int
	chained := map[ast.Node]bool{}
	ast.Inspect(n, func(n ast.Node) bool {
		if n == nil {
			depth -= stack[len(stack)-1]
			stack = stack[:len(stack)-1]
			return true
		}
		deeper := 0
		switch s := n.(type) {
		case *ast.IfStmt:
			if !chained[n] {
				deeper = 1
			}
			if s.Else != nil {
				chained[s.Else] = true
			}
		case *ast.ForStmt, *ast.RangeStmt, *ast.SwitchStmt, *ast.TypeSwitchStmt, *ast.SelectStmt:
			deeper = 1
		}
		depth += deeper
		stack = append(stack, deeper)
		deepest = max(deepest, depth)
		return true
	})
	return deepest
}
