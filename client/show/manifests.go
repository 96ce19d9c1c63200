package show

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/berthd/berth/client/api"
)

// The words of the VERDICT column.
const (
	accepted = "accepted"
	refused  = "refused"
)

func verdict(m api.Manifest) string {
	if m.Accepted {
		return accepted
	}
	return refused
}

// problem says what is wrong and where: the line, the field and upstream's message, or the warnings of what was accepted.
func problem(m api.Manifest) string {
	text := m.Message
	if m.Field != "" && !strings.Contains(text, m.Field) {
		text = m.Field + ": " + text
	}
	if text != "" && m.Line > 0 {
		text = fmt.Sprintf("line %d: %s", m.Line, text)
	}
	for _, w := range m.Warnings {
		if text != "" {
			text += "; "
		}
		text += "warning: " + w
	}
	return Clean(text)
}

func fileOf(m api.Manifest) string {
	if m.Document > 1 {
		return fmt.Sprintf("%s#%d", m.File, m.Document)
	}
	return m.File
}

// Manifests makes the table of verdicts; wide adds namespace, UID and age.
func Manifests(list []api.Manifest, wide bool, now time.Time) *Table {
	t := &Table{Headings: []string{"FILE", "KIND", "NAME", "VERDICT", "MESSAGE"}}
	if wide {
		t.Headings = []string{"FILE", "KIND", "NAMESPACE", "NAME", "VERDICT", "AGE", "UID", "MESSAGE"}
	}
	for _, m := range list {
		if wide {
			t.Add(fileOf(m), orNone(m.Kind), orNone(m.Namespace), orNone(m.Name), verdict(m), Age(now, m.Since), orNone(string(m.UID)), problem(m))
		} else {
			t.Add(fileOf(m), orNone(m.Kind), orNone(m.Name), verdict(m), problem(m))
		}
	}
	return t
}

// Verdicts writes verdicts as a compiler does: FILE:LINE: what is wrong, so that editors find the place.
func Verdicts(w io.Writer, list []api.Manifest) {
	for _, m := range list {
		place, subject := m.File, m.Kind
		if m.Line > 0 {
			place = fmt.Sprintf("%s:%d", m.File, m.Line)
		}
		if m.Name != "" {
			subject += " " + m.Name
			if m.Namespace != "" {
				subject = m.Kind + " " + m.Namespace + "/" + m.Name
			}
		}
		if subject != "" {
			subject += ": "
		}
		if m.Accepted {
			fmt.Fprintf(w, "%s: %sok\n", place, subject)
		} else {
			text := m.Message
			if m.Field != "" && !strings.Contains(text, m.Field) {
				text = m.Field + ": " + text
			}
			fmt.Fprintf(w, "%s: %serror: %s\n", place, subject, Clean(text))
		}
		for _, warning := range m.Warnings {
			fmt.Fprintf(w, "%s: %swarning: %s\n", place, subject, Clean(warning))
		}
	}
}
