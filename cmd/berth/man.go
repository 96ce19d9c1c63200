package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// newMan writes the man pages for the packages.
func newMan() *cobra.Command {
	var dir, release string
	var date int64
	cmd := &cobra.Command{
		Use:    "man",
		Short:  "Write a man page for each command",
		Hidden: true,
		Args:   noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := os.MkdirAll(dir, 0o755); err != nil {
				return fmt.Errorf("making the directory of the man pages: %w", err)
			}
			m := manual{release: release, date: time.Unix(date, 0).UTC()}
			return m.write(dir, cmd.Root())
		},
	}
	cmd.Flags().StringVar(&dir, "dir", ".", "write the pages into this directory")
	cmd.Flags().StringVar(&release, "version", version, "the version that the pages name")
	cmd.Flags().Int64Var(&date, "date", 0, "the date that the pages name, in seconds since 1970")
	return cmd
}

// manual has what all pages share.
type manual struct {
	release string
	date    time.Time
}

// write writes the page of a command and the pages of the commands below it.
func (m manual) write(dir string, cmd *cobra.Command) error {
	if cmd.Hidden {
		return nil
	}
	path := filepath.Join(dir, pageName(cmd)+".1")
	if err := os.WriteFile(path, m.page(cmd), 0o644); err != nil {
		return fmt.Errorf("writing a man page: %w", err)
	}
	for _, sub := range cmd.Commands() {
		if err := m.write(dir, sub); err != nil {
			return err
		}
	}
	return nil
}

func pageName(cmd *cobra.Command) string {
	return strings.ReplaceAll(cmd.CommandPath(), " ", "-")
}

// page returns a command's page (man(7)).
func (m manual) page(cmd *cobra.Command) []byte {
	cmd.InitDefaultHelpFlag()
	var b bytes.Buffer
	fmt.Fprintf(&b, ".TH \"%s\" 1 \"%s\" \"berth %s\" \"berth\"\n", strings.ToUpper(roff(pageName(cmd))),
		m.date.Format("2006-01-02"), roff(m.release))
	fmt.Fprintf(&b, ".SH NAME\n%s \\- %s\n", roff(pageName(cmd)), roff(lowerFirst(cmd.Short)))
	fmt.Fprintf(&b, ".SH SYNOPSIS\n.B %s\n", roff(cmd.UseLine()))
	b.WriteString(".SH DESCRIPTION\n")
	text := cmd.Long
	if text == "" {
		text = cmd.Short + "."
	}
	paragraphs(&b, text)
	if cmd.HasAvailableSubCommands() {
		b.WriteString(".SH COMMANDS\n")
		for _, sub := range cmd.Commands() {
			if !sub.Hidden {
				fmt.Fprintf(&b, ".TP\n.B %s\n%s\n", roff(sub.Name()), roff(sub.Short))
			}
		}
	}
	options(&b, cmd)
	if cmd.Example != "" {
		fmt.Fprintf(&b, ".SH EXAMPLES\n.nf\n%s\n.fi\n", roff(cmd.Example))
	}
	seeAlso(&b, cmd)
	return b.Bytes()
}

// options writes the flags that the help shows.
func options(b *bytes.Buffer, cmd *cobra.Command) {
	if !cmd.HasAvailableFlags() {
		return
	}
	b.WriteString(".SH OPTIONS\n")
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if f.Hidden {
			return
		}
		b.WriteString(".TP\n")
		value, usage := pflag.UnquoteUsage(f)
		short := ""
		if f.Shorthand != "" {
			short = "-" + f.Shorthand + ", "
		}
		fmt.Fprintf(b, ".B %s%s", roff(short), roff("--"+f.Name))
		if value != "" {
			fmt.Fprintf(b, " %s", roff(value))
		}
		fmt.Fprintf(b, "\n%s", roff(usage))
		if f.DefValue != "" && f.DefValue != "false" && f.DefValue != "[]" && f.DefValue != "0" && f.DefValue != "0s" {
			fmt.Fprintf(b, " (default %s)", roff(f.DefValue))
		}
		b.WriteString("\n")
	})
}

func seeAlso(b *bytes.Buffer, cmd *cobra.Command) {
	b.WriteString(".SH SEE ALSO\n")
	if cmd.HasParent() {
		fmt.Fprintf(b, ".BR %s (1),\n", roff(pageName(cmd.Parent())))
	}
	b.WriteString("/usr/share/doc/berth/README.md, /usr/share/doc/berth/reference.md\n")
}

// paragraphs writes a text with empty lines between its paragraphs. A paragraph with indented lines
// is not changed.
func paragraphs(b *bytes.Buffer, text string) {
	for i, p := range strings.Split(strings.TrimSpace(text), "\n\n") {
		if i > 0 {
			b.WriteString(".PP\n")
		}
		if strings.HasPrefix(p, " ") || strings.Contains(p, "\n ") {
			fmt.Fprintf(b, ".nf\n%s\n.fi\n", roff(p))
			continue
		}
		fmt.Fprintf(b, "%s\n", roff(p))
	}
}

// roff escapes text (groff(7)): backslashes, hyphens that somebody may copy, and lines that look
// like a request.
func roff(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(text)
	lines := strings.Split(text, "\n")
	for i, l := range lines {
		if strings.HasPrefix(l, ".") || strings.HasPrefix(l, "'") {
			lines[i] = `\&` + l
		}
	}
	return strings.Join(lines, "\n")
}

func lowerFirst(s string) string {
	if len(s) > 1 && s[1] >= 'a' && s[1] <= 'z' {
		return strings.ToLower(s[:1]) + s[1:]
	}
	return s
}
