package main

import (
	"bytes"
	"go/scanner"
	"go/token"
	"unicode/utf8"
)

// columns calls visit with each line of a file: its number, its width in characters, and whether it
// has no code, only a comment. A tab counts as one character, as in the linter lll.
func (f file) columns(visit func(line, columns int, comment bool)) {
	code := f.code()
	for i, text := range bytes.Split(f.text, []byte("\n")) {
		visit(i+1, utf8.RuneCount(text), !code[i+1])
	}
}

// code returns the lines that have code.
func (f file) code() map[int]bool {
	lines := map[int]bool{}
	set := token.NewFileSet()
	in := set.AddFile(f.path, set.Base(), len(f.text))
	var s scanner.Scanner
	s.Init(in, f.text, nil, 0)
	for {
		pos, tok, literal := s.Scan()
		if tok == token.EOF {
			return lines
		}
		first := in.Line(pos)
		// A string literal may go on over lines; the semicolon that the scanner adds at a line's
		// end may not.
		last := first
		if tok == token.STRING {
			last += bytes.Count([]byte(literal), []byte("\n"))
		}
		for line := first; line <= last; line++ {
			lines[line] = true
		}
	}
}
