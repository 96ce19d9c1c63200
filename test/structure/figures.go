package main

import (
	"fmt"
	"go/ast"
	"slices"
	"strings"
)

// Bounds of the figures. A figure may be as large as its bound.
const (
	maxAgentFields  = 15
	maxAgentMethods = 25
	maxAgentFiles   = 12
	maxAgentLines   = 1500
	maxWideStructs  = 0
	maxLongFuncs    = 5
	maxNesting      = 4
	maxParameters   = 6
	maxLongFiles    = 1
	maxLongComments = 0
)

// From these sizes on, a thing counts as wide or long.
const (
	wideStruct     = 20
	longFunction   = 60
	longFile       = 400
	commentColumns = 100
)

// figure is one line of the table.
type figure struct {
	name  string
	value int
	bound int
	// where says at which places the value is found: the largest ones.
	where string
}

// broken reports whether the figure is larger than its bound.
func (f figure) broken() bool { return f.value > f.bound }

// place is something that was measured, and where it stands.
type place struct {
	size int
	name string
}

// String names the thing with its size.
func (p place) String() string {
	if p.size == 0 {
		return ""
	}
	return fmt.Sprintf("%s (%d)", p.name, p.size)
}

// places are the things of one kind, with the size of each.
type places []place

// add appends a thing.
func (p *places) add(size int, format string, args ...any) {
	*p = append(*p, place{size, fmt.Sprintf(format, args...)})
}

// over returns the things that are larger than a size.
func (p places) over(size int) places {
	return slices.DeleteFunc(slices.Clone(p), func(x place) bool { return x.size <= size })
}

// largest returns the largest thing; of equals, the first.
func (p places) largest() place {
	var most place
	for _, x := range p {
		if x.size > most.size {
			most = x
		}
	}
	return most
}

// String names the largest things and their sizes, at most three.
func (p places) String() string {
	sorted := slices.Clone(p)
	slices.SortStableFunc(sorted, func(a, b place) int { return b.size - a.size })
	var names []string
	for _, x := range sorted[:min(len(sorted), 3)] {
		names = append(names, x.String())
	}
	return strings.Join(names, ", ")
}

// measure returns the figures of the files. But for the width of comments, tests and what is in
// test/ do not count.
func measure(files []file) []figure {
	var structs, functions, depths, parameters, long, comments, agentFiles places
	fields, methods, agentLines, agentAt := 0, 0, 0, ""
	for _, f := range files {
		f.comments(func(line, columns int) { comments.add(columns, "%s:%d", f.path, line) })
		if f.test {
			continue
		}
		long.add(f.lines(), "%s", f.path)
		if f.folder == agentFolder {
			agentFiles.add(f.lines(), "%s", f.path)
			agentLines += f.lines()
		}
		f.structs(func(spec *ast.TypeSpec, n int) {
			if f.folder == agentFolder && spec.Name.Name == agentType {
				fields, agentAt = n, f.at(spec)
			}
			if !slices.Contains(wideStructs, f.folder) {
				structs.add(n, "%s at %s", spec.Name.Name, f.at(spec))
			}
		})
		f.functions(func(decl *ast.FuncDecl) {
			if f.folder == agentFolder && receiver(decl) == agentType {
				methods++
			}
			name := decl.Name.Name + " at " + f.at(decl)
			functions.add(f.span(decl), "%s", name)
			depths.add(nesting(decl), "%s", name)
			if !implementsForeign(decl) {
				parameters.add(count(decl.Type.Params), "%s", name)
			}
		})
	}
	wide, longFuncs, longFiles := structs.over(wideStruct), functions.over(longFunction), long.over(longFile)
	longComments := comments.over(commentColumns)
	return []figure{
		{"fields of agent.Agent", fields, maxAgentFields, agentAt},
		{"methods of agent.Agent", methods, maxAgentMethods, ""},
		{"files of package agent", len(agentFiles), maxAgentFiles, ""},
		{"lines of package agent", agentLines, maxAgentLines, agentFiles.String()},
		{"structs over 20 fields", len(wide), maxWideStructs, wide.String()},
		{"functions over 60 lines", len(longFuncs), maxLongFuncs, longFuncs.String()},
		{"deepest nesting", depths.largest().size, maxNesting, depths.largest().name},
		{"most parameters", parameters.largest().size, maxParameters, parameters.largest().name},
		{"files over 400 lines", len(longFiles), maxLongFiles, longFiles.String()},
		{"comments over 100 columns", len(longComments), maxLongComments, longComments.largest().String()},
	}
}

// implementsForeign reports whether a method's docstring says that it implements one of the foreign
// interfaces.
func implementsForeign(decl *ast.FuncDecl) bool {
	return decl.Recv != nil && slices.ContainsFunc(foreignInterfaces, func(name string) bool {
		return strings.Contains(decl.Doc.Text(), "implements ["+name+"]")
	})
}
