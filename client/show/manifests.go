package show

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/berthd/berth/client/api"
)

// The values of the VERDICT column.
const (
	accepted = "accepted"
	refused  = "refused"
	// kept is for an object whose earlier version is used.
	kept = "kept"
	// ignored is for a file that the agent does not read.
	ignored = "ignored"
	both    = refused + ", " + kept
)

func verdict(m api.Manifest) string {
	switch {
	case m.Kept && m.Accepted:
		return kept
	case m.Kept:
		return both
	case m.Accepted:
		return accepted
	}
	return refused
}

// once returns the list without results of earlier versions in use. The result of the refused
// version then says that an earlier one is used.
func once(list []api.Manifest) []api.Manifest {
	out := slices.DeleteFunc(slices.Clone(list), func(m api.Manifest) bool { return m.Kept })
	for _, m := range list {
		if !m.Kept {
			continue
		}
		i := slices.IndexFunc(out, func(r api.Manifest) bool { return !r.Accepted && !r.Kept && versions(r, m) })
		if i < 0 {
			out = append(out, m)
			continue
		}
		out[i].Kept, out[i].UID, out[i].Warnings = true, m.UID, append(slices.Clone(out[i].Warnings), m.Warnings...)
		out[i].Namespace, out[i].Name = m.Namespace, m.Name
	}
	return out
}

// versions reports whether a refused manifest is a version of a kept object. A manifest that was
// refused early has no namespace and no node's name in its own name yet.
func versions(refused, kept api.Manifest) bool {
	return refused.File == kept.File && refused.Kind == kept.Kind &&
		(refused.Namespace == "" || refused.Namespace == kept.Namespace) && refused.Name != "" &&
		(refused.Name == kept.Name || refused.Namespace == "" && strings.HasPrefix(kept.Name, refused.Name+"-"))
}

// problems returns the errors of a refused manifest, with the fields in front.
func problems(m api.Manifest) []api.ManifestError {
	if m.Accepted || m.Message == "" {
		return nil
	}
	out := slices.Clone(m.Errors)
	if len(out) == 0 {
		out = []api.ManifestError{{Line: m.Line, Field: m.Field, Message: m.Message}}
	}
	for i := range out {
		if e := &out[i]; e.Field != "" && !strings.Contains(e.Message, e.Field) {
			e.Message = e.Field + ": " + e.Message
		}
	}
	return out
}

// Problem returns what is wrong and where (lines, fields and upstream's messages), or the warnings
// of an accepted manifest.
func Problem(m api.Manifest) string {
	var texts []string
	for _, e := range problems(m) {
		if e.Line > 0 {
			e.Message = fmt.Sprintf("line %d: %s", e.Line, e.Message)
		}
		texts = append(texts, e.Message)
	}
	for _, w := range m.Warnings {
		texts = append(texts, "warning: "+w)
	}
	return Clean(strings.Join(texts, "; "))
}

func fileOf(m api.Manifest) string {
	if m.Document > 1 {
		return fmt.Sprintf("%s#%d", m.File, m.Document)
	}
	return m.File
}

// Manifests returns the table of validation results, each object once, and of the ignored files
// behind them; wide adds namespace, UID and age.
func Manifests(list *api.ManifestList, wide bool, now time.Time) *Table {
	t := &Table{Headings: []string{"FILE", "KIND", "NAME", "VERDICT", "MESSAGE"}}
	if wide {
		t.Headings = []string{"FILE", "KIND", "NAMESPACE", "NAME", "VERDICT", "AGE", "UID", "MESSAGE"}
	}
	for _, m := range once(list.Items) {
		if wide {
			t.Add(fileOf(m), orNone(m.Kind), orNone(m.Namespace), orNone(m.Name), verdict(m), Age(now, m.Since),
				orNone(string(m.UID)), Problem(m))
		} else {
			t.Add(fileOf(m), orNone(m.Kind), orNone(m.Name), verdict(m), Problem(m))
		}
	}
	for _, i := range list.Ignored {
		row := make([]string, len(t.Headings))
		for at, heading := range t.Headings {
			switch heading {
			case "FILE":
				row[at] = i.File
			case "VERDICT":
				row[at] = ignored
			case "MESSAGE":
				row[at] = i.Why
			default:
				row[at] = orNone("")
			}
		}
		t.Add(row...)
	}
	return t
}

// lineOfWarning matches the start of a warning about a place in its file.
var lineOfWarning = regexp.MustCompile(`^line (\d+): `)

// Validated writes validation results in the form of a compiler's messages, FILE:LINE: MESSAGE, so
// that editors find the place. What is wrong with an object is in the order of the lines.
func Validated(w io.Writer, list []api.Manifest) {
	for _, m := range list {
		subject := m.Kind
		if m.Name != "" {
			subject += " " + m.Name
			if m.Namespace != "" {
				subject = m.Kind + " " + m.Namespace + "/" + m.Name
			}
		}
		if subject != "" {
			subject += ": "
		}
		say := func(line int, text string) {
			at := m.File
			if line > 0 {
				at = fmt.Sprintf("%s:%d", m.File, line)
			}
			fmt.Fprintf(w, "%s: %s%s\n", at, subject, text)
		}
		// otherwise the result is about a file or directory, and there are only warnings
		if m.Accepted && subject != "" {
			say(m.Line, "ok")
		}
		for _, f := range findings(m) {
			say(f.Line, f.Message)
		}
	}
}

// findings returns the errors and warnings of a manifest in the order of their lines, and last the
// errors without a line. A warning without a line is at the object's.
func findings(m api.Manifest) []api.ManifestError {
	var out []api.ManifestError
	for _, e := range problems(m) {
		out = append(out, api.ManifestError{Line: e.Line, Message: "error: " + Clean(e.Message)})
	}
	for _, warning := range m.Warnings {
		line := m.Line
		if at := lineOfWarning.FindStringSubmatch(warning); at != nil {
			line, _ = strconv.Atoi(at[1])
			warning = warning[len(at[0]):]
		}
		out = append(out, api.ManifestError{Line: line, Message: "warning: " + Clean(warning)})
	}
	slices.SortStableFunc(out, func(a, b api.ManifestError) int {
		return cmp.Compare(cmp.Or(a.Line, math.MaxInt), cmp.Or(b.Line, math.MaxInt))
	})
	return out
}
