package probes

import (
	"strings"

	v1 "k8s.io/api/core/v1"
)

// expandCommand replaces $(NAME) in each argument by the value of NAME in env. As in the kubelet, a
// variable whose value comes from elsewhere counts as empty. A name that is not in env stays as
// written, and $$ stands for $.
func expandCommand(command []string, env []v1.EnvVar) []string {
	var values map[string]string
	out := make([]string, len(command))
	for i, arg := range command {
		if !strings.Contains(arg, "$") {
			out[i] = arg
			continue
		}
		if values == nil {
			values = make(map[string]string, len(env))
			for _, e := range env {
				values[e.Name] = e.Value
			}
		}
		out[i] = expand(arg, values)
	}
	return out
}

// expand replaces the references in one argument.
func expand(s string, values map[string]string) string {
	var b strings.Builder
	for {
		before, after, found := strings.Cut(s, "$")
		b.WriteString(before)
		if !found {
			return b.String()
		}
		switch {
		case strings.HasPrefix(after, "$"):
			b.WriteByte('$')
			s = after[1:]
			continue
		case strings.HasPrefix(after, "("):
			if name, rest, closed := strings.Cut(after[1:], ")"); closed {
				if value, ok := values[name]; ok {
					b.WriteString(value)
				} else {
					b.WriteString("$(" + name + ")")
				}
				s = rest
				continue
			}
		}
		b.WriteByte('$')
		s = after
	}
}
