package generate

import "strings"

// maxArguments is how many bytes of arguments and environment Linux gives a process, see execve(2).
// A pod's author can write a short text that expands to more than the node has memory for.
const maxArguments = 6 << 20

// budget is how many bytes of [maxArguments] a container's texts have taken. The texts are what.
type budget struct {
	what  string
	taken int
}

// take takes n bytes from the budget, or returns the error that there are not so many left.
func (b *budget) take(n int) error {
	if b.taken += n; b.taken > maxArguments {
		return containerError("%s is larger than the %d MiB that a process can have", b.what, maxArguments>>20)
	}
	return nil
}

// expand replaces every $(NAME) by lookup's value. A name that lookup does not know stays as
// written. $$ is a literal $, and any other $ has no special meaning. A value is not expanded
// again. take is asked before bytes are added, and its error ends the expansion.
func expand(text string, lookup func(name string) (string, bool), take func(n int) error) (string, error) {
	if err := take(len(text)); err != nil || !strings.Contains(text, "$") {
		return text, err
	}
	var out strings.Builder
	for {
		before, rest, found := strings.Cut(text, "$")
		out.WriteString(before)
		if !found {
			return out.String(), nil
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
			if value, known := lookup(name); !known {
				out.WriteString("$(" + name + ")")
			} else if err := take(len(value)); err != nil {
				return "", err
			} else {
				out.WriteString(value)
			}
			text = after
		default:
			out.WriteByte('$')
		}
	}
}

// expandAll expands each text; nil stays nil.
func expandAll(texts []string, lookup func(string) (string, bool), take func(n int) error) ([]string, error) {
	if texts == nil {
		return nil, nil
	}
	out := make([]string, len(texts))
	for i, text := range texts {
		var err error
		if out[i], err = expand(text, lookup, take); err != nil {
			return nil, err
		}
	}
	return out, nil
}
