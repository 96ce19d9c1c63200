package show

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/util/duration"
	"sigs.k8s.io/yaml"
)

// gap is the space between columns (kubectl's value).
const gap = 3

// Table is rows under headings.
type Table struct {
	// Headings are not printed if they are nil.
	Headings []string
	Rows     [][]string
}

// Add adds a row.
func (t *Table) Add(cells ...string) { t.Rows = append(t.Rows, cells) }

// Write writes the table, without spaces at the ends of lines.
func (t *Table) Write(w io.Writer) error { return t.write(w, "") }

func (t *Table) write(w io.Writer, indent string) error {
	var text bytes.Buffer
	tw := tabwriter.NewWriter(&text, 0, 8, gap, ' ', 0)
	rows := t.Rows
	if t.Headings != nil {
		rows = append([][]string{t.Headings}, rows...)
	}
	for _, row := range rows {
		for i, cell := range row {
			lead := "\t"
			if i == 0 {
				lead = indent
			}
			fmt.Fprint(tw, lead, Clean(cell))
		}
		fmt.Fprintln(tw)
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	for line := range bytes.Lines(text.Bytes()) {
		if _, err := fmt.Fprintf(w, "%s\n", bytes.TrimRight(line, " \n")); err != nil {
			return err
		}
	}
	return nil
}

// Widths are the widths of columns, for rows that are written one at a time.
type Widths []int

// Widths returns the widths of the table's columns.
func (t *Table) Widths() Widths {
	var widths Widths
	for _, row := range append([][]string{t.Headings}, t.Rows...) {
		widths = widths.grow(row)
	}
	return widths
}

func (ws Widths) grow(row []string) Widths {
	for i, cell := range row {
		if i == len(ws) {
			ws = append(ws, 0)
		}
		ws[i] = max(ws[i], utf8.RuneCountInString(Clean(cell)))
	}
	return ws
}

// Line returns a row in columns of these widths. A column grows if the row is wider.
func (ws *Widths) Line(row []string) string {
	*ws = ws.grow(row)
	var b strings.Builder
	for i, cell := range row {
		cell = Clean(cell)
		b.WriteString(cell)
		if i < len(row)-1 {
			b.WriteString(strings.Repeat(" ", (*ws)[i]+gap-utf8.RuneCountInString(cell)))
		}
	}
	return strings.TrimRight(b.String(), " ")
}

// Clean makes a text safe for one cell on a terminal. It joins lines, and shows control characters
// as \x1b, because images and manifests could use them to deceive the reader.
func Clean(text string) string {
	text = strings.TrimSpace(text)
	if strings.IndexFunc(text, unsafeRune) < 0 {
		return text
	}
	var b strings.Builder
	for _, r := range text {
		switch {
		case r == '\n' || r == '\t' || r == '\r':
			b.WriteByte(' ')
		case unsafeRune(r):
			fmt.Fprintf(&b, "\\x%02x", r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// CleanLines makes a text of several lines safe for a terminal, as [Clean] does. It keeps the lines
// and what they begin with.
func CleanLines(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		rest := strings.TrimLeft(line, " \t")
		b.WriteString(line[:len(line)-len(rest)])
		b.WriteString(Clean(rest))
		if strings.HasSuffix(line, "\n") {
			b.WriteByte('\n')
		}
	}
	return b.String()
}

func unsafeRune(r rune) bool { return unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) }

// Age returns how long ago a time was, in kubectl's form.
func Age(now, at time.Time) string {
	if at.IsZero() {
		return "<unknown>"
	}
	return duration.HumanDuration(now.Sub(at))
}

// Took formats a duration that is usually well under a minute.
func Took(d time.Duration) string {
	switch {
	case d < time.Millisecond:
		return "<1ms"
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < 10*time.Second:
		return d.Round(10 * time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}

// Size formats a number of bytes in decimal units.
func Size(n uint64) string {
	units := []string{"B", "kB", "MB", "GB", "TB"}
	f, i := float64(n), 0
	for f >= 999.5 && i < len(units)-1 {
		f /= 1000
		i++
	}
	if i == 0 || f >= 99.95 {
		return fmt.Sprintf("%.0f%s", f, units[i])
	}
	return fmt.Sprintf("%.1f%s", f, units[i])
}

// JSON writes a value as indented JSON.
func JSON(w io.Writer, value any) error {
	data, err := json.MarshalIndent(value, "", "    ")
	if err != nil {
		return fmt.Errorf("writing JSON: %w", err)
	}
	_, err = fmt.Fprintf(w, "%s\n", data)
	return err
}

// YAML writes a value as YAML.
func YAML(w io.Writer, value any) error {
	data, err := yaml.Marshal(value)
	if err != nil {
		return fmt.Errorf("writing YAML: %w", err)
	}
	_, err = w.Write(data)
	return err
}
