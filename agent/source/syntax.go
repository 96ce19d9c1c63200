package source

import (
	"bytes"
	"regexp"
	"slices"
	"strconv"
	"strings"

	yamlv3 "go.yaml.in/yaml/v3"
	"sigs.k8s.io/yaml"
)

var (
	lineFirst   = regexp.MustCompile(`^line (\d+): `)
	lineInError = regexp.MustCompile(`line (\d+)`)
)

// syntaxProblem changes the line numbers in a parser's error into line numbers of the file. The
// first one becomes the problem's line and is removed from the message.
func (d *document) syntaxProblem(err error) *problem {
	text := bareSyntax(err)
	p := &problem{line: d.line}
	if m := lineFirst.FindStringSubmatch(text); m != nil {
		p.line, text = d.fileLineOf(m[1]), text[len(m[0]):]
	}
	if line := d.syntaxLine(text); line > 0 {
		p.line = d.fileLine(line)
	}
	p.message = "not valid YAML: " + lineInError.ReplaceAllStringFunc(withoutValues(text), func(line string) string {
		return "line " + strconv.Itoa(d.fileLineOf(line[len("line "):]))
	})
	return p
}

// quoted are the errors of the parser that quote a value, and the text to show for each. In a
// Secret the value may be what nobody may read: what is wrong with a manifest goes into logs and
// events.
var quoted = []struct {
	error *regexp.Regexp
	shown string
}{
	{
		regexp.MustCompile(`(?s)unknown anchor '.*' referenced`),
		"unknown anchor referenced: put a value that begins with * in quotes",
	},
	{regexp.MustCompile("(?s)cannot decode (!!\\w+) `.*` as an? (!!\\w+)"), "cannot decode a $1 as a $2"},
	{
		regexp.MustCompile(`(?s)invalid map key: .*`),
		"invalid map key: put a value that begins with { or [ in quotes, and a key that is no text, too",
	},
	{regexp.MustCompile(`(?s)unsupported map key of type: .*`), "invalid map key: put a key that is no text in quotes"},
	{regexp.MustCompile(`(?s)anchor '.*' value contains itself`), "an anchor's value contains itself"},
}

// withoutValues returns a parser's error without the manifest's values.
func withoutValues(text string) string {
	for _, q := range quoted {
		text = q.error.ReplaceAllString(text, q.shown)
	}
	return text
}

// bareSyntax is the text of a parser's error without what the libraries put in front.
func bareSyntax(err error) string {
	text := err.Error()
	for _, prefix := range []string{"error converting YAML to JSON: ", "yaml: ", "unmarshal errors:\n  "} {
		text = strings.TrimPrefix(text, prefix)
	}
	return text
}

// syntaxLine returns the line of the document that a syntax error is about, 0 if that is not known.
//
// The parser leaves out the line of an error in the first line, and counts the lines of some errors
// from 0. So the document is parsed again with an empty line in front, and the kind of the error
// says how its line is counted. If something was opened and not closed, the line is that of its
// beginning, and not that where the parser noticed.
func (d *document) syntaxLine(text string) int {
	data := append([]byte("\n"), bytes.TrimPrefix(d.data, []byte("\ufeff"))...)
	var err error
	if unclosed(text) {
		err = yamlv3.Unmarshal(data, &yamlv3.Node{})
	} else {
		_, err = yaml.YAMLToJSON(data)
	}
	if err == nil {
		return 0
	}
	m := lineFirst.FindStringSubmatch(bareSyntax(err))
	if m == nil || bareSyntax(err)[len(m[0]):] != text {
		return 0
	}
	line, err := strconv.Atoi(m[1])
	if err != nil {
		return 0
	}
	if !countedFrom0(text) {
		line-- // the empty line
	}
	return min(line, bytes.Count(bytes.TrimSuffix(d.data, []byte("\n")), []byte("\n"))+1)
}

// unclosed reports whether an error says that something was opened and not closed.
func unclosed(text string) bool {
	return containsOne(text, "could not find expected ':'", "found unexpected end of stream",
		"found unexpected document indicator", "did not find expected ',' or")
}

// countedFrom0 reports whether an error is one of the library's parser. The lines of these errors
// are counted from 0, and those of its scanner from 1.
func countedFrom0(text string) bool {
	return containsOne(text, "did not find expected ',' or", "did not find expected '-' indicator",
		"did not find expected <", "did not find expected key", "did not find expected node content",
		"found duplicate %", "found incompatible YAML document", "found undefined tag handle")
}

func containsOne(text string, parts ...string) bool {
	return slices.ContainsFunc(parts, func(part string) bool { return strings.Contains(text, part) })
}
