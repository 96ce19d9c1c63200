package fields

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

// meanings explains the scopes.
func meanings() map[Scope]string {
	return map[Scope]string{
		Node:         "a kubelet on Linux acts on them, also in pods from manifests",
		Cluster:      "a kubelet acts on them only in pods from an API server",
		ControlPlane: "the scheduler, a controller or the API server acts on them, and no node",
		Windows:      "they are for Windows",
		Nowhere:      "Kubernetes itself refuses them in that place, or no longer has what they ask for",
	}
}

// Markdown writes the matrix as a page.
func Markdown(w io.Writer) error {
	var b strings.Builder
	b.WriteString(`# What becomes of each field of a pod

` + "`go generate ./agent/pod/fields`" +
		` writes this page from the code, and a test fails when the page is out of date.
` + "`berth fields`" + ` shows the same.

Each field has one of these marks:

- *works*: the field does what Kubernetes says.
- *works where*: the field works under a condition.
- *accepted, no effect*: a pod with the field runs. An event, ` + "`berth manifests`" + ` and ` + "`berth validate`" +
		` name the field.
- *refused*: a pod with the field does not run, and the refusal has the reason.

The last column names the test that proves the mark; a test fails if that test does not exist. The mark is for pods from
manifests. The column "from an API server" has the mark for pods that a cluster's API server has bound to the node; an
empty cell means the same mark.

`)
	figures(&b)
	for _, section := range sections() {
		fmt.Fprintf(&b,
			"\n## %s\n\n| Fields | Mark | Where, or why | From an API server | Proven by |\n|---|---|---|---|---|\n",
			section.title)
		for _, r := range section.rows {
			fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", "`"+strings.Join(r.paths, "`<br>`")+"`", r.of.Mark,
				cell(r.of.Condition), cell(r.of.APIServer.String()), cell(r.of.Test))
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// figures writes how many fields have which mark.
func figures(b *strings.Builder) {
	c := Count()
	b.WriteString("| Fields that take a value | works | works where | accepted, no effect | refused | in all |\n" +
		"|---|---|---|---|---|---|\n")
	line := func(name string, by map[Mark]int) {
		fmt.Fprintf(b, "| %s |", name)
		sum := 0
		for _, m := range Marks() {
			fmt.Fprintf(b, " %d |", by[m])
			sum += by[m]
		}
		fmt.Fprintf(b, " %d |\n", sum)
	}
	line("those that a Linux node acts on", c.Node)
	line("all", c.Total)
	line("all, in pods from an API server", c.APIServer)
	b.WriteString("\nWho acts on the fields, in Kubernetes 1.36:\n\n")
	for _, s := range Scopes() {
		fmt.Fprintf(b, "- %d %s: %s\n", c.Scopes[s], s, meanings()[s])
	}
}

// section is a table of the page.
type section struct {
	title string
	rows  []row
}

// row is the fields of a section that share one rule.
type row struct {
	of    Field
	paths []string
}

// sections groups the fields by the part of the pod that they are in, and within it by rule.
func sections() []section {
	var out []section
	for _, f := range All() {
		if f.derived {
			continue
		}
		title := sectionOf(f.Path)
		i := slices.IndexFunc(out, func(s section) bool { return s.title == title })
		if i < 0 {
			out = append(out, section{title: title})
			i = len(out) - 1
		}
		out[i].add(f)
	}
	return out
}

// add puts a field into the row with the same mark, condition and test.
func (s *section) add(f Field) {
	for i := range s.rows {
		if r := &s.rows[i]; r.of.Mark == f.Mark && r.of.Condition == f.Condition && r.of.Test == f.Test &&
			r.of.APIServer.String() == f.APIServer.String() {
			r.paths = append(r.paths, f.Path)
			return
		}
	}
	s.rows = append(s.rows, row{of: f, paths: []string{f.Path}})
}

// sectionOf returns the title of a path's section: the list or struct of the pod that the path is
// in, otherwise the pod.
func sectionOf(path string) string {
	root, rest, _ := strings.Cut(path, ".")
	if root == "metadata" {
		return root
	}
	name, _, _ := strings.Cut(rest, ".")
	switch name = strings.TrimSuffix(name, "[*]"); name {
	case "volumes", "initContainers", "containers", "ephemeralContainers", "securityContext", "affinity":
		return root + "." + name
	}
	return root
}

// cell escapes a text for a cell of a table.
func cell(text string) string { return strings.ReplaceAll(text, "|", `\|`) }
