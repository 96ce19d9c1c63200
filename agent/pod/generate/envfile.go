package generate

import (
	"fmt"
	"strings"
)

// lineError says what is wrong with a line of an environment file, in the kubelet's words and
// without the line's content.
type lineError string

// Error returns the kubelet's words.
func (e lineError) Error() string { return string(e) }

func badLine(format string, line int) error { return lineError(fmt.Sprintf(format, line)) }

// ParseEnvFile returns the value of key in an environment file. ok is false if the key is not
// there. Each variable is NAME='value'. The value is literal and may span several lines. A comment
// starts with # on a line of its own or after the closing quote. A space before = is an error, and
// a space after it makes the value empty, as in a shell. Only what stands before key is checked.
// Errors name lines, never their content.
func ParseEnvFile(content, key string) (value string, ok bool, err error) {
	rest := content
	for line := 1; rest != ""; {
		text, after, _ := strings.Cut(rest, "\n")
		text = strings.TrimLeft(strings.TrimSuffix(text, "\r"), " \t")
		if text == "" || text[0] == '#' {
			rest, line = after, line+1
			continue
		}
		name, err := envFileName(text, line)
		if err != nil {
			return "", false, err
		}
		_, assigned, _ := strings.Cut(rest, "=")
		value, remaining, err := envFileValue(assigned, line)
		if err != nil {
			return "", false, err
		}
		if name == key {
			return value, true, nil
		}
		line += strings.Count(rest[:len(rest)-len(remaining)], "\n")
		rest = remaining
	}
	return "", false, nil
}

// envFileName returns the name before the = of a line.
func envFileName(text string, line int) (name string, err error) {
	name, _, found := strings.Cut(text, "=")
	switch {
	case !found:
		return "", badLine("invalid environment variable format at line %d: missing '='", line)
	case strings.Trim(name, " \t") == "":
		return "", badLine("invalid environment variable format at line %d: empty variable name", line)
	case strings.TrimRight(name, " \t") != name:
		return "", badLine("invalid environment variable format at line %d: whitespace before '=' is not allowed", line)
	}
	return name, nil
}

// envFileValue reads a quoted value and returns what follows the value's last line.
func envFileValue(text string, line int) (value, rest string, err error) {
	if text != "" && (text[0] == ' ' || text[0] == '\t') {
		_, rest, _ = strings.Cut(text, "\n")
		return "", rest, nil
	}
	quoted, ok := strings.CutPrefix(text, "'")
	if !ok {
		return "", "", badLine(
			"invalid environment variable format at line %d: value must be enclosed in single quotes", line)
	}
	value, after, closed := strings.Cut(quoted, "'")
	if !closed {
		return "", "", badLine("invalid environment variable format starting at line %d: unclosed single quote", line)
	}
	tail, rest, _ := strings.Cut(after, "\n")
	tail = strings.TrimLeft(strings.TrimSuffix(tail, "\r"), " \t")
	if tail != "" && tail[0] != '#' {
		end := line + strings.Count(value, "\n")
		return "", "", badLine("invalid environment variable format at line %d: unexpected content after closing quote",
			end)
	}
	return strings.ReplaceAll(value, "\r\n", "\n"), rest, nil
}
