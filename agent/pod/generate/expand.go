package generate

import "strings"

// expand replaces every $(NAME) by lookup's value. A name that lookup does not know stays as
// written. $$ is a literal $, and any other $ has no special meaning. A value is not expanded
// again.
func expand(text string, lookup func(name string) (string, bool)) string {
	if !strings.Contains(text, "$") {
		return text
	}
	var out strings.Builder
	for {
		before, rest, found := strings.Cut(text, "$")
		out.WriteString(before)
		if !found {
			return out.String()
		}
		text = rest
		switch {
		case strings.HasPrefix(text, "$"):
			out.WriteByte('$')
			text = text[1:]
		case strings.HasPrefix(text, "("):
			name, after, closed := strings.Cut(text[1:], ")")
			if !closed {
				out.WriteByte('$')
				continue
			}
			if value, known := lookup(name); known {
				out.WriteString(value)
			} else {
				out.WriteString("$(" + name + ")")
			}
			text = after
		default:
			out.WriteByte('$')
		}
	}
}

// expandAll expands each text; nil stays nil.
func expandAll(texts []string, lookup func(string) (string, bool)) []string {
	if texts == nil {
		return nil
	}
	out := make([]string, len(texts))
	for i, text := range texts {
		out[i] = expand(text, lookup)
	}
	return out
}
