package docs

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/berthd/berth/agent/node/doctor"
	"github.com/berthd/berth/agent/node/stats"
	"github.com/berthd/berth/agent/telemetry/metrics"
	"github.com/berthd/berth/configs"
	"github.com/berthd/berth/test/env"
)

var update = flag.Bool("update", false, "write docs/reference.md anew")

const referenceFile = "docs/reference.md"

// TestReferenceIsFresh makes the reference from the code and compares it with the file: go test
// ./test/docs -run Reference -update writes it.
func TestReferenceIsFresh(t *testing.T) {
	binary, err := env.Binary(t.Context(), root(t))
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	b.WriteString("# berth: reference\n\nMade from the code by `go test ./test/docs -run Reference -update`; a test " +
		"fails when it is stale. The\n[guide](README.md) explains.\n")
	commandsReference(t, &b, binary)
	configReference(t, &b)
	endpointsReference(t, &b)
	metricsReference(&b)
	eventsReference(t, &b)
	b.WriteString("\n## Checks of `berth doctor`\n\n- " + strings.Join(doctor.Names(), "\n- ") + "\n")
	path := filepath.Join(root(t), referenceFile)
	if *update {
		if err := os.WriteFile(path, b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	have, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(have, b.Bytes()) {
		t.Errorf("%s is stale: go test ./test/docs -run Reference -update\n%s", referenceFile,
			firstDifference(string(have), b.String()))
	}
}

func firstDifference(have, want string) string {
	a, b := strings.Split(have, "\n"), strings.Split(want, "\n")
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return fmt.Sprintf("line %d is %q, and should be %q", i+1, a[i], b[i])
		}
	}
	return fmt.Sprintf("%d lines, and should have %d", len(a), len(b))
}

// outputOf runs the binary.
func outputOf(t *testing.T, binary string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), binary, args...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH")}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("berth %s: %v: %s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

var verb = regexp.MustCompile(`(?m)^  ([a-z-]+) +\S`)

// commandsReference has the help of every command.
func commandsReference(t *testing.T, b *bytes.Buffer, binary string) {
	t.Helper()
	help := outputOf(t, binary, "help")
	b.WriteString("\n## Commands\n")
	var verbs []string
	for _, m := range verb.FindAllStringSubmatch(help, -1) {
		if m[1] != "help" && m[1] != "completion" && m[1] != "berth" {
			verbs = append(verbs, m[1])
		}
	}
	slices.Sort(verbs)
	for _, v := range slices.Compact(verbs) {
		fmt.Fprintf(b, "\n### berth %s\n\n```\n%s\n```\n", v, strings.TrimSpace(outputOf(t, binary, v, "--help")))
	}
}

// configReference has every field of both documents.
func configReference(t *testing.T, b *bytes.Buffer) {
	t.Helper()
	b.WriteString("\n## Config: BerthConfiguration (berth.dev/v1alpha1)\n\n| Field | |\n|---|---|\n")
	types := structs(t, filepath.Join(root(t), "configs/berth.go"))
	berthFields(b, types, "BerthConfiguration", "")

	empty := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(empty, []byte("apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	cfg, _, err := configs.Load(configs.Options{File: empty, DropInDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	cfg.Kubelet.ResolverConfig = nil // depends on the machine
	data, err := json.Marshal(cfg.Kubelet)
	if err != nil {
		t.Fatal(err)
	}
	var values map[string]any
	if err := json.Unmarshal(data, &values); err != nil {
		t.Fatal(err)
	}
	b.WriteString("\n## Config: KubeletConfiguration (kubelet.config.k8s.io/v1beta1)\n\nThe fields are those of " +
		"Kubernetes, with the defaults of berth. berth accepts a field that is not listed; such\na field has no " +
		"default.\n\n| Field | Default | |\n|---|---|---|\n")
	flat := map[string]string{}
	flatten(flat, "", values)
	without := configs.WithoutEffect()
	for path := range without {
		if _, there := flat[path]; !there {
			flat[path] = ""
		}
	}
	for _, path := range slices.Sorted(maps.Keys(flat)) {
		if path == "apiVersion" || path == "kind" {
			continue
		}
		note := ""
		if reason, ok := without[path]; ok {
			note = "no effect: " + reason
		}
		fmt.Fprintf(b, "| `%s` | %s | %s |\n", path, quote(flat[path]), note)
	}
}

func quote(s string) string {
	if s == "" {
		return ""
	}
	return "`" + strings.ReplaceAll(s, "|", `\|`) + "`"
}

// flatten puts a JSON value's leaves into out, by path.
func flatten(out map[string]string, prefix string, value any) {
	if m, ok := value.(map[string]any); ok && len(m) > 0 {
		for k, v := range m {
			flatten(out, strings.TrimPrefix(prefix+"."+k, "."), v)
		}
		return
	}
	data, _ := json.Marshal(value)
	out[prefix] = strings.Trim(string(data), `"`)
}

// structs returns the struct types of a file.
func structs(t *testing.T, path string) map[string]*ast.StructType {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	types := map[string]*ast.StructType{}
	ast.Inspect(file, func(n ast.Node) bool {
		if spec, ok := n.(*ast.TypeSpec); ok {
			if s, ok := spec.Type.(*ast.StructType); ok {
				types[spec.Name.Name] = s
			}
		}
		return true
	})
	return types
}

// berthFields writes a row for each field of a struct, and of the structs in it.
func berthFields(b *bytes.Buffer, types map[string]*ast.StructType, name, prefix string) {
	for _, f := range types[name].Fields.List {
		if f.Tag == nil || len(f.Names) == 0 {
			continue
		}
		key, _, _ := strings.Cut(strings.TrimPrefix(strings.Trim(f.Tag.Value, "`"), `json:"`), ",")
		path := prefix + strings.Trim(key, `"`)
		if id, ok := f.Type.(*ast.Ident); ok && types[id.Name] != nil {
			berthFields(b, types, id.Name, path+".")
			continue
		}
		fmt.Fprintf(b, "| `%s` | %s |\n", path, strings.Join(strings.Fields(f.Doc.Text()), " "))
	}
}

var endpoint = regexp.MustCompile(`^(GET|POST|PUT|DELETE) /`)

// endpointsReference has what the server answers to: the string literals and constants of its
// routes.
func endpointsReference(t *testing.T, b *bytes.Buffer) {
	t.Helper()
	paths := constants(t, "client/api")
	found := map[string]bool{}
	eachFile(t, "agent/server", func(file *ast.File) {
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.BasicLit:
				if s, err := strconv.Unquote(n.Value); err == nil && n.Kind == token.STRING && endpoint.MatchString(s) {
					found[s] = true
				}
				if s, err := strconv.Unquote(n.Value); err == nil && n.Kind == token.STRING &&
					strings.HasPrefix(s, "/") && strings.Contains(s, "{namespace}/{pod}") {
					found["POST "+s] = true
				}
			case *ast.BinaryExpr:
				if s := joined(n, paths); endpoint.MatchString(s) {
					found[s] = true
				}
				return false
			}
			return true
		})
	})
	b.WriteString("\n## Endpoints\n\nThe socket serves all of them. The health port serves `/healthz`. The read-only " +
		"port, where the config opens it, serves\n`/healthz`, `/pods`, `/stats/summary` and all of `/metrics`.\n\n")
	for _, s := range slices.Sorted(maps.Keys(found)) {
		fmt.Fprintf(b, "- `%s`\n", s)
	}
}

// joined evaluates a sum of string literals and of constants of package api.
func joined(e ast.Expr, constants map[string]string) string {
	switch e := e.(type) {
	case *ast.BasicLit:
		s, _ := strconv.Unquote(e.Value)
		return s
	case *ast.SelectorExpr:
		return constants[e.Sel.Name]
	case *ast.Ident:
		return constants[e.Name]
	case *ast.BinaryExpr:
		return joined(e.X, constants) + joined(e.Y, constants)
	}
	return ""
}

// eachFile parses the Go files, tests aside, of a folder and of those below it.
func eachFile(t *testing.T, folder string, visit func(*ast.File)) {
	t.Helper()
	eachNamed(t, folder, func(_ string, file *ast.File) { visit(file) })
}

// eachNamed is eachFile with the files' paths in the repository.
func eachNamed(t *testing.T, folder string, visit func(path string, file *ast.File)) {
	t.Helper()
	err := filepath.WalkDir(filepath.Join(root(t), folder), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err == nil {
			visit(strings.TrimPrefix(path, root(t)+"/"), file)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// constants returns the string constants of the packages of a folder, by name.
func constants(t *testing.T, folder string) map[string]string {
	t.Helper()
	out := map[string]string{"EventTypeNormal": "Normal", "EventTypeWarning": "Warning"}
	eachFile(t, folder, func(file *ast.File) {
		for _, decl := range file.Decls {
			gen, ok := decl.(*ast.GenDecl)
			if !ok || gen.Tok != token.CONST {
				continue
			}
			for _, spec := range gen.Specs {
				v, ok := spec.(*ast.ValueSpec)
				if !ok {
					continue
				}
				for i, name := range v.Names {
					if i < len(v.Values) {
						if s := joined(v.Values[i], out); s != "" {
							out[name.Name] = s
						}
					}
				}
			}
		}
	})
	return out
}

var described = regexp.MustCompile(`fqName: "([^"]+)", help: "((?:[^"\\]|\\.)*)".*variableLabels: \{([^}]*)\}`)

// metricsReference has what /metrics serves, without Go's own.
func metricsReference(b *bytes.Buffer) {
	rows := map[string]string{}
	for name, m := range knownMetrics() {
		if !strings.HasPrefix(name, "go_") && !strings.HasPrefix(name, "process_") {
			rows[name] = fmt.Sprintf("| `%s` | %s | %s |\n", name, strings.ReplaceAll(m.labels, ",", ", "), m.help)
		}
	}
	b.WriteString("\n## Metrics\n\nThe metrics of Go itself (`go_`, `process_`) are not listed.\n\n" +
		"- `/metrics/probes` has the metrics that begin with `prober_` and `berth_probe_`; `/metrics` has the " +
		"others.\n" +
		"- `/metrics/resource` has the metrics of KEP-2371 for metrics-server.\n" +
		"- `/metrics/cadvisor` has those metrics of cAdvisor that berth can measure without cAdvisor.\n" +
		"- `/metrics/slis` has the metrics of KEP-3466.\n\n| Metric | Labels | |\n|---|---|---|\n")
	for _, name := range slices.Sorted(maps.Keys(rows)) {
		b.WriteString(rows[name])
	}
}

// metric is what a metric says of itself. labels are joined with commas.
type metric struct{ help, labels string }

// knownMetrics returns the metrics of /metrics and /metrics/probes, by their names.
func knownMetrics() map[string]metric {
	set := metrics.New("node", "version")
	set.Running(func() (pods int, containers map[string]int) { return 0, nil })
	set.Pods(true, func() map[metrics.PodKind]int { return nil })
	set.RuntimeUp(func() bool { return true })
	set.Constants("v1", "v1.0.0", nil)
	set.ClientCertificate(nil)
	set.ServerCertificate(nil)
	set.ResourceClaims(nil)
	descs := make(chan *prometheus.Desc, 1024)
	set.Registry.Describe(descs)
	stats.New(stats.Config{}, stats.Deps{}).DiskMetrics().Describe(descs)
	set.Probes.Describe(descs)
	close(descs)
	known := map[string]metric{}
	for d := range descs {
		if m := described.FindStringSubmatch(d.String()); m != nil {
			known[m[1]] = metric{help: m[2], labels: m[3]}
		}
	}
	return known
}

// literals calls each with every string literal of the agent and the probes.
func literals(t *testing.T, each func(string)) {
	t.Helper()
	for _, folder := range []string{"agent", "probes"} {
		eachFile(t, folder, func(file *ast.File) {
			ast.Inspect(file, func(n ast.Node) bool {
				if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
					if s, err := strconv.Unquote(lit.Value); err == nil {
						each(s)
					}
				}
				return true
			})
		})
	}
}
