package source

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"

	yamlv3 "go.yaml.in/yaml/v3"
	"sigs.k8s.io/yaml"
)

const (
	// MaxManifest is the size of the largest manifest in bytes (the kubelet's limit).
	MaxManifest = 10 << 20
	// maxExpanded is the limit for the bytes, and for the number of values, of a document after its
	// aliases are expanded.
	maxExpanded      = MaxManifest
	maxExpandedNodes = 200_000
)

// document is one YAML or JSON document of a manifest.
type document struct {
	index int    // from 1
	line  int    // of its first byte, from 1
	data  []byte // with the separator before it
	root  *yamlv3.Node
}

// problem is the reason why a document or a file is bad.
type problem struct {
	line    int
	field   string
	message string
	// all are all faults, with the first one, if the problem is about fields.
	all []Fault
}

// checkBytes finds an error that makes a whole manifest unreadable.
func checkBytes(data []byte) *problem {
	switch {
	case len(data) > MaxManifest:
		return &problem{message: fmt.Sprintf("the manifest is larger than %d MiB", MaxManifest>>20)}
	case bytes.IndexByte(data, 0) >= 0 || !utf8.Valid(data):
		return &problem{message: "the manifest is not text (UTF-8)"}
	default:
		return nil
	}
}

// split cuts a manifest into its documents, at the lines that begin with three dashes. YAML allows
// such a line nowhere else. split counts a document without content, but does not return it.
func split(data []byte) []*document {
	var docs []*document
	start, startLine, line, index := 0, 1, 0, 1
	add := func(end int) {
		if chunk := data[start:end]; hasContent(chunk) {
			docs = append(docs, &document{index: index, line: startLine, data: chunk})
			index++
		}
	}
	for pos := 0; pos < len(data); {
		line++
		end := pos + 1 + bytes.IndexByte(data[pos:], '\n')
		if end == pos {
			end = len(data)
		}
		if isSeparator(data[pos:end]) {
			add(pos)
			start, startLine = pos, line
		}
		pos = end
	}
	add(len(data))
	return docs
}

// isSeparator reports whether a line begins a document.
func isSeparator(line []byte) bool {
	rest, ok := bytes.CutPrefix(line, []byte("---"))
	return ok && (len(rest) == 0 || bytes.IndexByte([]byte(" \t\r\n"), rest[0]) >= 0)
}

// hasContent reports whether a chunk has more than separators, directives and comments.
func hasContent(chunk []byte) bool {
	for line := range bytes.Lines(chunk) {
		if isSeparator(line) {
			line = line[3:]
		}
		line = bytes.TrimSpace(bytes.TrimPrefix(line, []byte("\ufeff")))
		if len(line) > 0 && line[0] != '#' && line[0] != '%' && !bytes.Equal(line, []byte("...")) {
			return true
		}
	}
	return false
}

// toJSON converts a document as upstream does. It also refuses duplicate keys, and aliases that
// expand to more than maxExpanded.
func (d *document) toJSON() ([]byte, *problem) {
	if bytes.IndexByte(d.data, '&') >= 0 && bytes.IndexByte(d.data, '*') >= 0 {
		if p := d.checkAliases(); p != nil {
			return nil, p
		}
	}
	json, err := yaml.YAMLToJSONStrict(d.data)
	if err == nil {
		return json, d.leftover()
	}
	// The strict parser also refuses a key that overrides a merged key. Such a key is not a
	// duplicate.
	if root := d.node(); root != nil {
		if line, key, ok := duplicateKey(root); ok {
			return nil, &problem{line: d.fileLine(line), message: fmt.Sprintf("duplicate key %q", key)}
		}
		if json, err = yaml.YAMLToJSON(d.data); err == nil {
			return json, d.leftover()
		}
	}
	return nil, d.syntaxProblem(err)
}

// leftover finds text after the document's end. The parser that converts YAML to JSON does not look
// at such text.
func (d *document) leftover() *problem {
	if !mayEndEarly(d.data) {
		return nil
	}
	parser := yamlv3.NewDecoder(bytes.NewReader(d.data))
	var first, next yamlv3.Node
	if parser.Decode(&first) != nil {
		return nil // the other parsers accept it
	}
	err := parser.Decode(&next)
	if errors.Is(err, io.EOF) {
		return nil
	}
	p := &problem{line: d.fileLine(next.Line)}
	if err != nil {
		p.line = d.line
		if m := lineInError.FindStringSubmatch(err.Error()); m != nil {
			// This error of the parser counts lines from 0 and does not count the separator.
			p.line = d.fileLineOf(m[1]) + 1
		}
	}
	p.message = "the document has ended before this: begin each document with a line ---"
	return p
}

// mayEndEarly reports whether a document may end before its last line. It may end at a line of
// dots, or where its first value is closed.
//
// It may also end early if the first value is not at the beginning of a line. A mapping of lines
// without indentation goes on to the last line.
func mayEndEarly(data []byte) bool {
	for line := range bytes.Lines(data) {
		separator := isSeparator(line)
		if separator {
			line = line[3:]
		}
		line = bytes.TrimPrefix(line, []byte("\ufeff"))
		text := bytes.TrimSpace(line)
		if len(text) == 0 || text[0] == '#' || text[0] == '%' {
			continue
		}
		return separator || strings.IndexByte(" \t{[\"'", line[0]) >= 0 || bytes.Contains(data, []byte("\n..."))
	}
	return false
}

// fileLineOf is [document.fileLine] for a line number as text.
func (d *document) fileLineOf(line string) int {
	n, err := strconv.Atoi(line)
	if err != nil {
		return d.line
	}
	return d.fileLine(n)
}

// fileLine returns the line in the file of a line of the document.
func (d *document) fileLine(line int) int {
	return d.line + max(line, 1) - 1
}

// node parses the document with line numbers, once. It returns nil if the document is not YAML.
// Only a document with a problem or a warning is parsed in this way.
func (d *document) node() *yamlv3.Node {
	if d.root == nil {
		var root yamlv3.Node
		if err := yamlv3.Unmarshal(d.data, &root); err != nil {
			return nil
		}
		d.root = &root
	}
	return d.root
}

var errTooLarge = errors.New("its aliases expand to more than a manifest may have")

// checkAliases refuses a document whose aliases expand too far (a "YAML bomb"), before anything
// expands them.
func (d *document) checkAliases() *problem {
	root := d.node()
	if root == nil {
		return nil // the parser reports what is wrong
	}
	if _, _, err := expandedSize(root, map[*yamlv3.Node][2]int{}, map[*yamlv3.Node]bool{}); err != nil {
		return &problem{line: d.line, message: "the document is refused: " + err.Error()}
	}
	return nil
}

// expandedSize returns how many bytes and values a node has after its aliases are expanded.
func expandedSize(
	n *yamlv3.Node, known map[*yamlv3.Node][2]int, open map[*yamlv3.Node]bool,
) (size, nodes int, err error) {
	if n.Kind == yamlv3.AliasNode {
		n = n.Alias
	}
	if sum, ok := known[n]; ok {
		return sum[0], sum[1], nil
	}
	if open[n] {
		return 0, 0, errors.New("an alias is inside of what it stands for")
	}
	open[n] = true
	size, nodes = len(n.Value)+1, 1
	for _, child := range n.Content {
		s, c, err := expandedSize(child, known, open)
		if err != nil {
			return 0, 0, err
		}
		size, nodes = size+s, nodes+c
		if size > maxExpanded || nodes > maxExpandedNodes {
			return 0, 0, errTooLarge
		}
	}
	delete(open, n)
	known[n] = [2]int{size, nodes}
	return size, nodes, nil
}

// duplicateKey finds a key that a mapping has twice.
func duplicateKey(n *yamlv3.Node) (line int, key string, found bool) {
	if n.Kind == yamlv3.MappingNode {
		seen := make(map[string]bool, len(n.Content)/2)
		for i := 0; i+1 < len(n.Content); i += 2 {
			k := n.Content[i]
			if seen[k.Value] && k.Kind == yamlv3.ScalarNode {
				return k.Line, k.Value, true
			}
			seen[k.Value] = k.Kind == yamlv3.ScalarNode
		}
	}
	for _, child := range n.Content {
		if line, key, found = duplicateKey(child); found {
			return line, key, true
		}
	}
	return 0, "", false
}
