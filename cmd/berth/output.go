package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/berthd/berth/client/show"
)

// The formats with a template (kubectl's).
const (
	formatJSONPath = "jsonpath"
	formatColumns  = "custom-columns"
)

// output is a verb's -o.
type output string

// flag adds -o. allowed are the formats; the empty one is always allowed. A verb with JSON output
// also has the formats with a template.
func (o *output) flag(cmd *cobra.Command, allowed ...string) {
	if slices.Contains(allowed, "json") {
		allowed = append(allowed, formatJSONPath+"=TEMPLATE", formatColumns+"=HEADING:PATH,...")
	}
	cmd.Flags().StringVarP((*string)(o), "output", "o", "", "output format: "+strings.Join(allowed, ", "))
	_ = cmd.RegisterFlagCompletionFunc("output",
		cobra.FixedCompletions(completable(allowed), cobra.ShellCompDirectiveNoFileComp))
	check := cmd.PreRunE
	cmd.PreRunE = func(cmd *cobra.Command, args []string) error {
		if err := o.check(cmd, allowed); err != nil {
			return err
		}
		if check != nil {
			return check(cmd, args)
		}
		return nil
	}
}

// completable returns the formats for a shell's completion: up to the template.
func completable(formats []string) []string {
	var out []string
	for _, f := range formats {
		before, _, with := strings.Cut(f, "=")
		if with {
			before += "="
		}
		out = append(out, before)
	}
	return out
}

// check reports a format that the verb does not have, and an invalid template.
func (o *output) check(cmd *cobra.Command, allowed []string) error {
	format, text := o.split()
	switch {
	case *o == "", !o.templated() && slices.Contains(allowed, string(*o)):
		return nil
	case !o.templated() || !slices.Contains(completable(allowed), format+"="):
		return fmt.Errorf("-o %s is not known: use %s", *o, strings.Join(allowed, ", "))
	case text == "":
		return fmt.Errorf("-o %s: the template is missing: %s", *o,
			allowed[slices.IndexFunc(allowed, func(a string) bool { return strings.HasPrefix(a, format+"=") })])
	}
	if w := cmd.Flags().Lookup("watch"); w != nil && w.Changed {
		return errors.New("-w goes with no template: use another -o")
	}
	_, err := o.printer()
	return err
}

// split returns the format's name and the template's text.
func (o *output) split() (format, text string) {
	format, text, _ = strings.Cut(string(*o), "=")
	return format, text
}

// templated reports whether the format has a template.
func (o *output) templated() bool {
	format, _ := o.split()
	return format == formatJSONPath || format == formatColumns
}

// structured reports whether the output is made from the whole value, and is not one of berth's
// tables.
func (o *output) structured() bool { return *o == "json" || *o == "yaml" || o.templated() }

// write writes a value in the format, which must be structured.
func (o *output) write(w io.Writer, value any) error { return o.writeList(w, value, false) }

// writeList is write for verbs that can leave out the headings.
func (o *output) writeList(w io.Writer, value any, noHeaders bool) error {
	switch {
	case *o == "yaml":
		return show.YAML(w, value)
	case !o.templated():
		return show.JSON(w, value)
	}
	p, err := o.printer()
	if err != nil {
		return err
	}
	plain, err := plainOf(value)
	if err != nil {
		return err
	}
	return p.print(w, plain, noHeaders)
}

// printer returns the printer for the template.
func (o *output) printer() (printer, error) {
	format, text := o.split()
	if format == formatColumns {
		return newColumns(text)
	}
	return newTemplate("-o "+formatJSONPath, text)
}
