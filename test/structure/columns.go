package main

import (
	"bytes"
	"go/scanner"
	"go/token"
	"unicode/utf8"
)

// comments calls visit with each line that has a comment and no code: its number and its width in
// characters. Directives such as "//go:generate" are no comments.
func (f file) comments(visit func(line, columns int)) {
	code := f.code()
	for i, text := range bytes.Split(f.text, []byte("\n")) {
		if !code[i+1] && !bytes.HasPrefix(text, []byte("//go:")) {
			visit(i+1, utf8.RuneCount(text))
		}
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
