package arch

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// wrongImport is an import that the rules do not allow.
type wrongImport struct{ path, from, to string }

// String says what is wrong, and for the agent's packages on which floors they are.
func (w wrongImport) String() string {
	text := fmt.Sprintf("%s: %s imports %s", w.path, w.from, w.to)
	if top(w.from) != "agent" || top(w.to) != "agent" {
		return text
	}
	return text + "; " + floorName(w.from) + " may not know " + floorName(w.to)
}

// floorName returns the short name of a package's floor.
func floorName(pkg string) string {
	i := floorOf(pkg)
	if i < 0 {
		return "(no floor)"
	}
	name, _, _ := strings.Cut(floors[i].name, ":")
	return name
}

// wrongImports returns the imports of the sources that the rules do not allow. Tests may import
// what they like.
func wrongImports(t *testing.T, all []source) []wrongImport {
	t.Helper()
	var wrong []wrongImport
	for _, s := range all {
		if s.test {
			continue
		}
		for _, imported := range s.imports(t) {
			to, ours := strings.CutPrefix(imported, module)
			if ours && !mayImport(s.pkg, to) {
				wrong = append(wrong, wrongImport{s.path, s.pkg, to})
			}
		}
	}
	return wrong
}

func TestMayImport(t *testing.T) {
	for _, tc := range []struct {
		from, to string
		want     bool
	}{
		{"cmd/berth", "agent", true},
		{"cmd/berth", "agent/server", true},
		{"cmd/berth", "configs", true},
		{"agent", "cmd/berth", false},
		{"agent/pod/steps", "cri", true},
		{"agent/pod/steps", "internal/pods", true},
		{"agent/pod/steps", "test/env", false},
		{"internal/pods", "agent/pod/plan", false},
		{"cri/remote", "cri", true},
		{"cri/remote", "cri/internal/streams", true},
		{"cri/remote", "cri/containerd", false},
		{"cri/containerd", "cri", true},
		{"cri/containerd", "cri/internal/classify", true},
		{"cri/containerd", "internal/notify", true},
		{"cri/containerd", "cri/remote", false},
		{"cri/containerd", "agent", false},
		{"cri/native", "cri/native/shim", true},
		{"cri/serve", "cri/fake", false},
		{"cri", "cri/remote", false},
		{"cri", "status", false},
		{"cri", "agent/pod/plan", false},
		{"status", "cri", false},
		{"cri/native", "cni", true},
		{"cri/remote", "cni", false},
		{"test/env", "test/images", true},
		{"test/scenario", "agent", true},

		// The composition knows all, and nobody knows the composition.
		{"agent", "agent/server", true},
		{"agent", "agent/pod/steps", true},
		{"agent", "agent/pod/plan", true},
		{"agent/server", "agent", false},
		{"agent/pod/steps", "agent", false},
		// Nobody below the composition knows the face, nor the types of its API.
		{"agent/server", "agent/server/auth", true},
		{"agent/server", "agent/pod/timeline", true},
		{"agent/server", "agent/desired", true},
		{"agent/pod", "agent/server", false},
		{"agent/pod/steps", "agent/server", false},
		{"agent/desired", "agent/server", false},
		{"agent/cluster/certs", "agent/server/auth", false},
		{"agent/server", "client/api", true},
		{"agent/server/auth", "client/streams", true},
		{"agent/server", "client", false},
		{"agent/pod", "client/api", false},
		{"agent/desired", "client/api", false},
		{"agent/node", "client/api", false},
		// Down, over as many floors as one likes, and never up.
		{"agent/desired", "agent/pod", true},
		{"agent/cluster", "agent/cluster/kube", true},
		{"agent/pod", "agent/pod/steps", true},
		{"agent/pod", "agent/pod/plan", true},
		{"agent/pod/steps", "agent/volumes", true},
		{"agent/pod/steps", "agent/pod/checkpoint", true},
		{"agent/images", "agent/pod/generate", true},
		{"agent/volumes/csi", "agent/pod/tasks", true},
		{"agent/pod/steps", "agent/pod", false},
		{"agent/pod", "agent/desired", false},
		{"agent/cluster/kube", "agent/cluster", false},
		{"agent/pod/plan", "agent/pod/steps", false},
		{"agent/pod/generate", "agent/node", false},
		{"agent/pod/worker", "agent/source", false},
		// On one floor: a package knows its own subfolders and the neighbours of the list.
		{"agent/node", "agent/node/admit", true},
		{"agent/node/admit", "agent/node", false},
		{"agent/node/oom", "agent/node/stats", false},
		{"agent/desired", "agent/desired/drain", true},
		{"agent/desired", "agent/cluster", false},
		{"agent/cluster", "agent/desired", false},
		{"agent/cluster/tokens", "agent/cluster/kube", true},
		{"agent/cluster/kube/fake", "agent/cluster/kube", true},
		{"agent/cluster/kube", "agent/cluster/tokens", false},
		{"agent/source", "agent/node/admit", true},
		{"agent/source/objects", "agent/node/admit", false},
		{"agent/node/admit", "agent/source", false},
		{"agent/source", "agent/volumes", false},
		{"agent/source", "agent/cluster/kube", false},
		{"agent/images", "agent/volumes", false},
		{"agent/pod/checkpoint", "agent/pod/plan", true},
		{"agent/pod/plan", "agent/pod/checkpoint", false},
		{"agent/telemetry/metrics", "agent/pod/hooks", false},
		// A package that no floor has knows nothing, and nobody knows it.
		{"agent/new", "agent/pod/plan", false},
		{"agent", "agent/new", false},
		{"agent/pod/new", "agent/pod/plan", false},
	} {
		if got := mayImport(tc.from, tc.to); got != tc.want {
			t.Errorf("mayImport(%s, %s) = %t", tc.from, tc.to, got)
		}
	}
}

func TestImportsGoOneWay(t *testing.T) {
	for _, wrong := range wrongImports(t, sources(t)) {
		t.Error(wrong)
	}
}

// A small tree of sources with right and wrong imports shows that the rules are asked of every file
// that is no test.
func TestWrongImportsAreCaught(t *testing.T) {
	root := t.TempDir()
	for path, imports := range map[string][]string{
		"cmd/berth/main.go":             {"agent", "agent/server", "client"},
		"agent/agent.go":                {"agent/server", "agent/pod", "client/api"},
		"agent/server/server.go":        {"agent/pod/timeline", "agent/server/auth", "client/api"},
		"agent/pod/engine.go":           {"agent/pod/steps", "agent/server"},
		"agent/pod/engine_test.go":      {"agent/server"},
		"agent/pod/steps/start.go":      {"agent/images", "agent/pod/plan", "client/api"},
		"agent/pod/plan/plan.go":        {"internal/pods", "agent/pod/steps"},
		"agent/source/file.go":          {"agent/source/objects", "agent/volumes", "configs"},
		"agent/cluster/tokens/token.go": {"agent/cluster/kube", "agent/cluster"},
		"agent/unsorted/new.go":         {"agent/pod/plan"},
		"agent/source/testdata/no.go":   {"agent"},
		"status/status.go":              {"internal/pods", "cri"},
		"internal/pods/pods.go":         {"status"},
	} {
		text := "package " + filepath.Base(filepath.Dir(path)) + "\n\nimport (\n\t\"fmt\"\n"
		for _, to := range imports {
			text += fmt.Sprintf("\t%q\n", module+to)
		}
		file := filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text+")\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	var got []string
	made, err := parse(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, wrong := range wrongImports(t, made) {
		got = append(got, strings.TrimPrefix(wrong.String(), root+"/"))
	}
	want := []string{
		"agent/cluster/tokens/token.go: agent/cluster/tokens imports agent/cluster; parts may not know wishes",
		"agent/pod/engine.go: agent/pod imports agent/server; engine may not know face",
		"agent/pod/plan/plan.go: agent/pod/plan imports agent/pod/steps; ground may not know steps",
		"agent/pod/steps/start.go: agent/pod/steps imports client/api",
		"agent/source/file.go: agent/source imports agent/volumes; parts may not know parts",
		"agent/unsorted/new.go: agent/unsorted imports agent/pod/plan; (no floor) may not know ground",
		"internal/pods/pods.go: internal/pods imports status",
		"status/status.go: status imports cri",
	}
	if !slices.Equal(got, want) {
		t.Errorf("wrong imports:\n%s\nnot\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// Every package of the agent stands on one floor, and no neighbour is on the list that is not
// imported.
func TestFloorsFitThePackages(t *testing.T) {
	all := sources(t)
	used := map[string]bool{}
	for _, s := range all {
		if top(s.pkg) != "agent" || s.test {
			continue
		}
		var found []string
		for _, f := range floors {
			for _, pattern := range f.packages {
				if matches(pattern, s.pkg) {
					found = append(found, pattern)
				}
			}
		}
		if len(found) != 1 {
			t.Errorf("%s stands on %d floors: %v", s.path, len(found), found)
		}
		for _, imported := range s.imports(t) {
			to := strings.TrimPrefix(imported, module)
			for _, n := range neighbours {
				if matches(n.from, s.pkg) && n.to == to {
					used[n.from+" "+n.to] = true
				}
			}
		}
	}
	for _, n := range neighbours {
		if !used[n.from+" "+n.to] {
			t.Errorf("%s does not import %s: take it off the list of neighbours", n.from, n.to)
		}
		if n.why == "" {
			t.Errorf("%s imports %s: the list of neighbours does not say why", n.from, n.to)
		}
	}
}
