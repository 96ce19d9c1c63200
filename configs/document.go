package configs

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
	sigsyaml "sigs.k8s.io/yaml"
)

// docKind is the kind of a document in a config file.
type docKind string

const (
	kubeletDoc docKind = "KubeletConfiguration"
	berthDoc   docKind = BerthKind
)

const (
	kubeletAPIVersion = "kubelet.config.k8s.io/v1beta1"
	// maxFileSize is the largest size of a config file, in bytes. A real one has a few kilobytes.
	maxFileSize = 1 << 20
)

// document is one YAML document: its values as JSON types, and the line of each value.
type document struct {
	kind   docKind
	file   string
	line   int // the document's first line
	fields map[string]any
	lines  map[string]int // canonical path -> line in the file
	twice  []string       // canonical paths of keys that occur more than once
}

// readDocuments reads a config file. Empty documents are skipped; each kind may occur once.
func readDocuments(file string) ([]document, error) {
	data, err := readBounded(file)
	if err != nil {
		return nil, fmt.Errorf("read config file: %w", err)
	}
	var docs []document
	for _, part := range splitDocuments(data) {
		doc, err := parseDocument(file, part)
		if err != nil {
			return nil, err
		}
		if doc == nil {
			continue
		}
		for _, d := range docs {
			if d.kind == doc.kind {
				return nil, fmt.Errorf("%s:%d: a second %s in one file, the first begins at line %d", file, doc.line,
					doc.kind, d.line)
			}
		}
		docs = append(docs, *doc)
	}
	return docs, nil
}

func readBounded(file string) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFileSize+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxFileSize {
		return nil, fmt.Errorf("%s is larger than %d bytes", file, maxFileSize)
	}
	return data, nil
}

// splitDocuments splits data at the lines that begin with the document marker "---". The text after
// the marker on the same line belongs to the document. Each part begins with as many empty lines as
// the file has before it, so line numbers are those of the file.
func splitDocuments(data []byte) [][]byte {
	var parts [][]byte
	var text bytes.Buffer
	line := 0
	for l := range bytes.Lines(data) {
		if rest, ok := bytes.CutPrefix(l, []byte("---")); ok &&
			(len(rest) == 0 || strings.ContainsRune(" \t\r\n", rune(rest[0]))) {
			parts = append(parts, bytes.Clone(text.Bytes()))
			text.Reset()
			text.WriteString(strings.Repeat("\n", line))
			l = append([]byte("   "), rest...)
		}
		text.Write(l)
		line++
	}
	return append(parts, text.Bytes())
}

// parseDocument returns nil for a document without content.
func parseDocument(file string, text []byte) (*document, error) {
	var root yaml.Node
	if err := yaml.NewDecoder(bytes.NewReader(text)).Decode(&root); errors.Is(err, io.EOF) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("parse config file %s: %w", file, err)
	}
	body := &root
	if body.Kind == yaml.DocumentNode {
		body = body.Content[0]
	}
	if body.Kind == yaml.ScalarNode && body.Tag == "!!null" {
		return nil, nil
	}
	doc := &document{file: file, line: body.Line, lines: map[string]int{}}
	if body.Kind != yaml.MappingNode {
		return nil, fmt.Errorf("%s:%d: the document is not an object with apiVersion and kind", file, doc.line)
	}
	doc.locate(body, "")
	// The values come from the library that reads every Kubernetes file (YAML 1.1 booleans such as
	// "no"). The node tree above only gives the lines.
	asJSON, err := sigsyaml.YAMLToJSON(text)
	if err != nil {
		return nil, fmt.Errorf("%s:%d: parse config file: %w", file, doc.line, err)
	}
	dec := json.NewDecoder(bytes.NewReader(asJSON))
	dec.UseNumber()
	if err := dec.Decode(&doc.fields); err != nil {
		return nil, fmt.Errorf("%s:%d: parse config file: %w", file, doc.line, err)
	}
	return doc, doc.identify()
}

// identify finds the document's kind and takes apiVersion and kind out of its fields.
func (d *document) identify() error {
	version, _ := d.fields["apiVersion"].(string)
	kind, _ := d.fields["kind"].(string)
	switch {
	case version == kubeletAPIVersion && kind == string(kubeletDoc):
		d.kind = kubeletDoc
	case version == BerthAPIVersion && kind == BerthKind:
		d.kind = berthDoc
	default:
		return fmt.Errorf("%s:%d: kind %q of apiVersion %q is not a configuration: want %s of %s, or %s of %s",
			d.file, d.line, kind, version, kubeletDoc, kubeletAPIVersion, BerthKind, BerthAPIVersion)
	}
	delete(d.fields, "apiVersion")
	delete(d.fields, "kind")
	delete(d.lines, "apiVersion")
	delete(d.lines, "kind")
	return nil
}

// locate records the line of every key and list item. It does not follow aliases: the content of an
// alias has the alias's line.
func (d *document) locate(n *yaml.Node, path string) {
	child := func(name string) string {
		if path == "" {
			return name
		}
		return path + "." + name
	}
	switch n.Kind {
	case yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			p := child(n.Content[i].Value)
			if _, again := d.lines[p]; again {
				d.twice = append(d.twice, p)
			}
			d.lines[p] = n.Content[i].Line
			d.locate(n.Content[i+1], p)
		}
	case yaml.SequenceNode:
		for i, item := range n.Content {
			p := child(strconv.Itoa(i))
			d.lines[p] = item.Line
			d.locate(item, p)
		}
	}
}

// origin returns "FILE:LINE" of a canonical path.
func (d *document) origin(path string) string {
	return d.file + ":" + strconv.Itoa(d.lines[path])
}

// absolute resolves a relative path against the directory of the document's file; the empty path
// stays empty.
func (d *document) absolute(path string) string {
	if path == "" || filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(filepath.Dir(d.file), path)
}
