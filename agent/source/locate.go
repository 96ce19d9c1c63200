package source

import (
	"fmt"
	"strconv"
	"strings"

	yamlv3 "go.yaml.in/yaml/v3"
)

// lineOf returns the file's line of a field path ("spec.containers[0].image"), or of the deepest part of it that the document has.
func (d *document) lineOf(path string) int {
	n := d.node()
	if n == nil {
		return d.line
	}
	if n.Kind == yamlv3.DocumentNode && len(n.Content) > 0 {
		n = n.Content[0]
	}
	line := n.Line
	for _, step := range pathSteps(path) {
		next, at := descend(n, step)
		if next == nil {
			break
		}
		n, line = next, at
	}
	return d.fileLine(line)
}

// pathSteps cuts a field path into names and indexes: a.b[c.d][0] is a, b, c.d, 0.
func pathSteps(path string) []string {
	var steps []string
	for path != "" {
		switch path[0] {
		case '.':
			path = path[1:]
		case '[':
			end := strings.IndexByte(path, ']')
			if end < 0 {
				return steps
			}
			steps = append(steps, strings.Trim(path[1:end], `"`))
			path = path[end+1:]
		default:
			end := strings.IndexAny(path, ".[")
			if end < 0 {
				end = len(path)
			}
			steps = append(steps, path[:end])
			path = path[end:]
		}
	}
	return steps
}

// descend goes one step down, and returns the node there and the line where it begins (of its key, in a mapping). A name on a list means the first
// element that has it: some messages leave indexes out.
func descend(n *yamlv3.Node, step string) (*yamlv3.Node, int) {
	if n.Kind == yamlv3.AliasNode {
		n = n.Alias
	}
	switch n.Kind {
	case yamlv3.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			if n.Content[i].Value == step {
				return n.Content[i+1], n.Content[i].Line
			}
		}
	case yamlv3.SequenceNode:
		if i, err := strconv.Atoi(step); err == nil {
			if i >= 0 && i < len(n.Content) {
				return n.Content[i], n.Content[i].Line
			}
			return nil, 0
		}
		for _, item := range n.Content {
			if item.Kind != yamlv3.MappingNode {
				continue
			}
			if found, line := descend(item, step); found != nil {
				return found, line
			}
		}
	}
	return nil, 0
}

// indexed puts indexes into a field path that upstream's messages leave out ("spec.containers[0].volumeMounts.subPath"): that of the element of the list whose field has
// the value; of several, the one after the first nth. Where there is no value to go by, it is the only element that has the field. A path that leaves none out, and one whose
// element is not known, is returned as it is.
func (e element) indexed(path string, value any, nth int) string {
	n := e.doc.node()
	if n == nil {
		return path
	}
	if n.Kind == yamlv3.DocumentNode && len(n.Content) > 0 {
		n = n.Content[0]
	}
	for _, step := range pathSteps(e.prefix) {
		if n, _ = descend(n, step); n == nil {
			return path
		}
	}
	out, done := path, 0
	for _, step := range pathSteps(path) {
		if n.Kind == yamlv3.AliasNode {
			n = n.Alias
		}
		at := done + strings.Index(path[done:], step)
		if _, err := strconv.Atoi(step); err != nil && n.Kind == yamlv3.SequenceNode {
			i := elementWith(n, step, fmt.Sprint(value), nth)
			if i < 0 {
				return path
			}
			added := fmt.Sprintf("[%d]", i)
			dot := len(out) - len(path) + at - 1
			out, n = out[:dot]+added+out[dot:], n.Content[i]
		}
		done = at + len(step)
		if n, _ = descend(n, step); n == nil {
			return out
		}
	}
	return out
}

// elementWith returns the index of the element of a list whose field has a value, of several the one after the first nth; without a value, that of the only one that has
// the field. It is -1 where there is none.
func elementWith(list *yamlv3.Node, name, value string, nth int) int {
	var with []int
	for i, item := range list.Content {
		if item.Kind == yamlv3.AliasNode {
			item = item.Alias
		}
		if item.Kind != yamlv3.MappingNode {
			continue
		}
		if found, _ := descend(item, name); found != nil && (value == "" || found.Value == value) {
			with = append(with, i)
		}
	}
	if len(with) == 0 || value == "" && len(with) > 1 {
		return -1
	}
	return with[min(nth, len(with)-1)]
}
