package configs

import (
	"go/ast"
	"go/types"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/tools/go/packages"
	kubeletconfigv1beta1 "k8s.io/kubelet/config/v1beta1"
)

// reads are the fields that the code of berth reads, as "Struct.Field", apart from what only takes
// in, checks or shows a config.
var reads = sync.OnceValues(func() (map[string]bool, error) {
	loaded, err := packages.Load(&packages.Config{
		Mode: packages.NeedName | packages.NeedFiles | packages.NeedSyntax | packages.NeedTypes |
			packages.NeedTypesInfo | packages.NeedImports | packages.NeedExportFile,
		Dir: "..",
	}, "./configs", "./agent/...", "./cgroups/...", "./cmd/...", "./cri/...", "./probes/...", "./status/...")
	if err != nil {
		return nil, err
	}
	out := map[string]bool{}
	for _, p := range loaded {
		for _, err := range p.Errors {
			return nil, err
		}
		for _, file := range p.Syntax {
			name := filepath.Base(p.Fset.Position(file.Pos()).Filename)
			acts := []string{"backoff.go", "eviction.go", "gates.go", "nodename.go", "serving.go"}
			if p.Name == "configs" && !slices.Contains(acts, name) {
				continue
			}
			ast.Inspect(file, func(n ast.Node) bool {
				if sel, ok := n.(*ast.SelectorExpr); ok {
					if s := p.TypesInfo.Selections[sel]; s != nil && s.Kind() == types.FieldVal {
						out[owner(s)+"."+sel.Sel.Name] = true
					}
				}
				return true
			})
		}
	}
	return out, nil
})

// owner returns the name of the struct that has the selected field. It may be embedded.
func owner(s *types.Selection) string {
	t := target(s.Recv())
	for _, i := range s.Index()[:len(s.Index())-1] {
		t = target(t.Underlying().(*types.Struct).Field(i).Type())
	}
	if named, ok := t.(*types.Named); ok {
		return named.Obj().Name()
	}
	return ""
}

// target returns a type, or what it points to.
func target(t types.Type) types.Type {
	if p, ok := types.Unalias(t).(*types.Pointer); ok {
		t = p.Elem()
	}
	return types.Unalias(t)
}

// TestEveryFieldActsOrIsWarnedOf checks that the code reads each field of the kubelet's and of
// berth's own document, unless the start warns that the field has no effect.
func TestEveryFieldActsOrIsWarnedOf(t *testing.T) {
	used, err := reads()
	if err != nil {
		t.Fatal(err)
	}
	warned := WithoutEffect()
	maps.Copy(warned, nativeFields())
	warned["runOnce"] = "it is refused"
	var missing []string
	var walk func(t reflect.Type, path string)
	walk = func(t reflect.Type, path string) {
		for name, field := range goFields(t) {
			at := strings.TrimPrefix(path+"."+name, ".")
			if _, ok := warned[at]; ok {
				continue
			}
			inner := field.Type
			if inner.Kind() == reflect.Pointer {
				inner = inner.Elem()
			}
			switch {
			case inner.Kind() == reflect.Struct && ours(inner):
				walk(inner, at)
			case !used[t.Name()+"."+field.Name]:
				missing = append(missing, at)
			}
		}
	}
	walk(reflect.TypeFor[kubeletconfigv1beta1.KubeletConfiguration](), "")
	walk(reflect.TypeFor[BerthConfiguration](), "")
	slices.Sort(missing)
	if len(missing) > 0 {
		t.Errorf("nothing reads, and no warning names: %q", missing)
	}
}

// ours reports whether a struct's fields are settings of their own, and are not read elsewhere.
func ours(t reflect.Type) bool {
	return strings.HasPrefix(t.PkgPath(), "k8s.io/kubelet/") || strings.HasSuffix(t.PkgPath(), "/configs")
}

// goFields returns the fields of a struct by their JSON names.
func goFields(t reflect.Type) map[string]reflect.StructField {
	out := map[string]reflect.StructField{}
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name != "" {
			out[name] = f
		}
	}
	return out
}
