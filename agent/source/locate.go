package source

import (
	"fmt"
	"strconv"
	"strings"

	yamlv3 "go.yaml.in/yaml/v3"
)

// lineOf returns the line in the file of a field path ("spec.containers[0].image"). If the document
// does not have the whole path, lineOf returns the line of the deepest part that it has.
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

// descend goes one step down. It returns the node there and the line where the node begins (in a
// mapping, the line of its key). If step is a name and the node is a list, descend returns that
// field of the first element that has it: some messages omit indexes.
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

// indexed adds indexes to a field path if upstream's message omits them
// ("spec.containers[0].volumeMounts.subPath").
//
// The index is that of the list element whose field has the value. If several elements have the
// value, indexed skips the first nth of them and takes the next one. Without a value, it takes the
// only element that has the field.
//
// indexed returns the path unchanged if the path has all indexes, or if the element is not known.
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

// elementWith returns the index of the list element whose field has the value. If several elements
// have the value, it skips the first nth of them. Without a value, it returns the index of the only
// element that has the field. It returns -1 if no element fits.
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
