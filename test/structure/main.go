// Command structure prints figures about the code's structure, each with its bound and its largest
// place.
//
// Purpose: to show in numbers whether a type, a package or a function grows beyond what one reader
// can hold. "make lint" prints the table; with -strict a figure beyond its bound fails.
//
// The figures are defined so:
//   - Tests, all of test/, generated files and modules of their own do not count. The width of
//     comments counts in every file; that of code is the linter lll's.
//   - A struct's fields are its names; an embedded field is one. Structs of the packages configs
//     and client/api may be wide.
//   - A function's lines go from "func" to its closing brace, both included, without its docstring.
//   - Nesting counts the statements if, for, switch and select that stand inside each other, in
//     function literals too. An "else if" is no deeper than its "if", and a case no deeper than its
//     switch.
//   - Parameters are names, without the receiver. Methods of foreign interfaces do not count.
//   - A line is a comment if it has no code. A tab is one column.
//
// Truth owned: the bounds, in figures.go. Concurrency: none.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"text/tabwriter"
)

func main() {
	strict := flag.Bool("strict", false, "end with 1 if a figure is beyond its bound")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "structure [-strict] [checkout]")
		flag.PrintDefaults()
	}
	flag.Parse()
	checkout := "."
	if flag.NArg() > 0 {
		checkout = flag.Arg(0)
	}
	files, err := read(os.DirFS(checkout))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	broken, err := show(os.Stdout, measure(files))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if broken > 0 && *strict {
		os.Exit(1)
	}
}

// show writes the table and returns how many figures are beyond their bounds.
func show(w io.Writer, figures []figure) (int, error) {
	broken := 0
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, f := range figures {
		mark := ""
		if f.broken() {
			mark = "over"
			broken++
		}
		fmt.Fprintf(table, "%s\t%d\tof %d\t%s\t%s\n", f.name, f.value, f.bound, mark, f.where)
	}
	if err := table.Flush(); err != nil {
		return broken, fmt.Errorf("write the table: %w", err)
	}
	return broken, nil
}
