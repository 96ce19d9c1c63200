// Package docs proves what README.md, CONTRIBUTING.md and the pages of docs tell people to type:
// every command of their sh blocks, and every berth and make command in a sentence. A stale command
// fails here.
//
// Without root, the tests check that targets of make, packages, verbs, flags, links and folders
// exist. With the integration tag, they run the commands of the README and of the pages in
// byReader, in this order and from top to bottom, on a real containerd. test/service/run runs the
// pages in byService, on a system where it can install packages.
//
// Truth owned: none. Concurrency: none.
package docs

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/berthd/berth/test/env"
	"github.com/berthd/berth/test/images"
)

// byReader are the documents that TestReadme runs, in this order.
var byReader = []string{
	"README.md", "docs/commands.md", "docs/configuration.md", "docs/manifests.md", "docs/images.md", "docs/probes.md",
	"docs/metrics.md", "docs/many-machines.md",
}

// byService are the pages that test/service/run runs in this order, on a Debian with systemd and
// the packages; the last one on a Debian of its own.
var byService = []string{"docs/install.md", "docs/first-pod.md", "docs/operations.md", "docs/apiserver.md"}

// documents returns the files whose commands are proven: all but the reference, which is made from
// the code.
func documents(t *testing.T) []string {
	t.Helper()
	pages, err := filepath.Glob(filepath.Join(root(t), "docs", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	files := []string{"README.md", "CONTRIBUTING.md"}
	for _, p := range pages {
		if file := strings.TrimPrefix(p, root(t)+"/"); file != referenceFile {
			files = append(files, file)
		}
	}
	return files
}

// command is one command of a document, with its here-document if it has one.
type command struct {
	file string
	line int
	text string
}

// words returns the command's words on its first line, without its comment.
func (c command) words() []string {
	first, _, _ := strings.Cut(c.text, "\n")
	words := strings.Fields(first)
	if i := slices.IndexFunc(words, func(w string) bool { return strings.HasPrefix(w, "#") }); i >= 0 {
		words = words[:i]
	}
	return words
}

var (
	hereDocument = regexp.MustCompile(`<<'?(\w+)'?`)
	inlineCode   = regexp.MustCompile("`([^`\n]+)`")
	link         = regexp.MustCompile(`\]\(([^)#:]+)\)`)
	assignment   = regexp.MustCompile(`^([A-Z]+)=`)
)

// root returns the checkout.
func root(t *testing.T) string {
	t.Helper()
	dir, err := images.Root()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// lines returns a document's lines.
func lines(t *testing.T, file string) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root(t), file))
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(string(text), "\n")
}

// block is a fenced block: its language, the line after its fence, and its text without the fence's
// indentation.
type block struct {
	language string
	line     int
	text     []string
}

// blocks returns a document's fenced blocks.
func blocks(text []string) []block {
	var all []block
	open, indent := false, ""
	for i, l := range text {
		trimmed := strings.TrimSpace(l)
		switch {
		case strings.HasPrefix(trimmed, "```") && !open:
			open, indent = true, l[:strings.Index(l, "`")]
			all = append(all, block{language: strings.TrimPrefix(trimmed, "```"), line: i + 2})
		case trimmed == "```":
			open = false
		case open:
			all[len(all)-1].text = append(all[len(all)-1].text, strings.TrimPrefix(l, indent))
		}
	}
	return all
}

// commands returns the commands of a document's sh blocks. A line that a backslash or a
// here-document continues is one command with what follows.
func commands(file string, text []string) []command {
	var all []command
	for _, b := range blocks(text) {
		if b.language != "sh" {
			continue
		}
		for i := 0; i < len(b.text); i++ {
			l := strings.TrimSpace(b.text[i])
			if l == "" || strings.HasPrefix(l, "#") {
				continue
			}
			c := command{file: file, line: b.line + i, text: l}
			for strings.HasSuffix(c.text, `\`) && i+1 < len(b.text) {
				i++
				c.text = strings.TrimSuffix(c.text, `\`) + strings.TrimSpace(b.text[i])
			}
			if m := hereDocument.FindStringSubmatch(c.text); m != nil {
				for i+1 < len(b.text) {
					i++
					c.text += "\n" + b.text[i]
					if b.text[i] == m[1] {
						break
					}
				}
			}
			all = append(all, c)
		}
	}
	return all
}

// sentences returns the berth and make commands in a document's running text.
func sentences(file string, text []string) []command {
	var all []command
	fenced := false
	for i, l := range text {
		if strings.HasPrefix(strings.TrimSpace(l), "```") {
			fenced = !fenced
		}
		for _, m := range inlineCode.FindAllStringSubmatch(l, -1) {
			if first, _, more := strings.Cut(m[1], " "); !fenced && more && (first == "berth" || first == "make") {
				all = append(all, command{file: file, line: i + 1, text: m[1]})
			}
		}
	}
	return all
}

// run are the commands that only a run can prove; the integration test runs them.
var run = []string{"cat", "curl", "install", "mkdir", "mv", "sh"}

func TestCommandsExist(t *testing.T) {
	binary, err := env.Binary(t.Context(), root(t))
	if err != nil {
		t.Fatal(err)
	}
	makefile := strings.Join(lines(t, "Makefile"), "\n")
	for _, file := range documents(t) {
		text := lines(t, file)
		found := commands(file, text)
		service, reader := slices.Contains(byService, file), slices.Contains(byReader, file)
		switch typed := service || reader || file == "CONTRIBUTING.md"; {
		case typed && len(found) == 0:
			t.Errorf("%s has no commands: is it still read rightly?", file)
		case !typed && len(found) > 0:
			t.Errorf("%s has commands that no test runs: add the file to byReader or byService", file)
		}
		for _, c := range append(found, sentences(file, text)...) {
			words := c.words()
			for len(words) > 0 && assignment.MatchString(words[0]) {
				words = words[1:]
			}
			switch name := words[0]; {
			case name == "make":
				checkMake(t, c, makefile)
			case name == "berth":
				checkBerth(t, c, binary)
			case name == "go":
				checkGo(t, c)
			case strings.HasPrefix(name, ".ci/"), strings.HasPrefix(name, "scripts/"):
				if _, err := exec.LookPath(filepath.Join(root(t), name)); err != nil {
					t.Errorf("%s:%d: %s: %v", c.file, c.line, name, err)
				}
			case service:
			case !reader || !slices.Contains(run, name):
				t.Errorf("%s:%d: nothing here knows how to prove %q", c.file, c.line, c.text)
			}
		}
	}
}

// checkMake checks that a make command's targets and variables are the Makefile's.
func checkMake(t *testing.T, c command, makefile string) {
	t.Helper()
	for _, w := range c.words() {
		switch m := assignment.FindStringSubmatch(w); {
		case w == "make":
		case m != nil:
			if !strings.Contains(makefile, "$("+m[1]+")") && !strings.Contains(makefile, m[1]+"=/") &&
				!usedByRunner(t, m[1]) {
				t.Errorf("%s:%d: %q: nothing reads the variable %s", c.file, c.line, c.text, m[1])
			}
		case !regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(w) + `:`).MatchString(makefile):
			t.Errorf("%s:%d: %q: the Makefile has no target %s", c.file, c.line, c.text, w)
		}
	}
}

// usedByRunner tells whether the test runner reads an environment variable.
func usedByRunner(t *testing.T, name string) bool {
	t.Helper()
	return strings.Contains(strings.Join(lines(t, "test/runner/phases.go"), "\n"), `os.Getenv("`+name+`")`)
}

// checkBerth checks that a berth command's verb and flags are in the binary's own help.
func checkBerth(t *testing.T, c command, binary string) {
	t.Helper()
	words := c.words()
	if len(words) < 2 || words[1] == "help" {
		return
	}
	out, err := exec.CommandContext(t.Context(), binary, words[1], "--help").CombinedOutput()
	help := string(out)
	if err != nil || !strings.Contains(help, "\n  berth "+words[1]) ||
		!strings.Contains(help, "Usage:\n  berth "+words[1]) {
		t.Errorf("%s:%d: %q: berth has no verb %s", c.file, c.line, c.text, words[1])
		return
	}
	for _, w := range words[2:] {
		name, _, _ := strings.Cut(w, "=")
		switch {
		case w == "--":
			return
		case strings.HasPrefix(name, "--"):
			if !regexp.MustCompile(regexp.QuoteMeta(name) + `[ \n]`).MatchString(help) {
				t.Errorf("%s:%d: %q: berth %s has no flag %s", c.file, c.line, c.text, words[1], name)
			}
		case strings.HasPrefix(name, "-") && len(name) > 1:
			for _, letter := range name[1:] {
				if !strings.Contains(help, "  -"+string(letter)+", ") {
					t.Errorf("%s:%d: %q: berth %s has no flag -%c", c.file, c.line, c.text, words[1], letter)
				}
			}
		}
	}
}

// checkGo checks that a go command's packages exist.
func checkGo(t *testing.T, c command) {
	t.Helper()
	for _, w := range c.words() {
		if !strings.HasPrefix(w, "./") {
			continue
		}
		cmd := exec.CommandContext(t.Context(), "go", "list", "-tags", "integration,cluster", w)
		cmd.Dir = root(t)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s:%d: %q: %s", c.file, c.line, c.text, out)
		}
	}
}

// TestServiceRunsItsPages: the script that runs the pages of byService names them all, in their
// order.
func TestServiceRunsItsPages(t *testing.T) {
	if want := "pages=(" + strings.Join(byService, " ") + ")"; !slices.Contains(lines(t, "test/service/run"), want) {
		t.Errorf("test/service/run has no line %s", want)
	}
}

func TestLinksAndFoldersExist(t *testing.T) {
	for _, file := range append([]string{"CHANGELOG.md"}, documents(t)...) {
		for i, l := range lines(t, file) {
			var paths []string
			for _, m := range link.FindAllStringSubmatch(l, -1) {
				paths = append(paths, m[1])
			}
			for _, m := range inlineCode.FindAllStringSubmatch(l, -1) {
				// CONTRIBUTING names folders with a slash at the end.
				if file == "CONTRIBUTING.md" && strings.HasSuffix(m[1], "/") && !strings.HasPrefix(m[1], "/") {
					paths = append(paths, m[1])
				}
			}
			for _, p := range paths {
				if _, err := os.Stat(filepath.Join(root(t), filepath.Dir(file), p)); err != nil {
					t.Errorf("%s:%d: %v", file, i+1, err)
				}
			}
		}
	}
}

// built are the folders at the root that make fills.
var built = []string{"bin", "dist"}

// TestEveryFloorHasALine checks that CONTRIBUTING says what each floor is for: the folders at the
// root and those of agent.
func TestEveryFloorHasALine(t *testing.T) {
	text := lines(t, "CONTRIBUTING.md")
	for _, pattern := range []string{"*", "agent/*"} {
		found, err := filepath.Glob(filepath.Join(root(t), pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, dir := range found {
			name := strings.TrimPrefix(dir, root(t)+"/")
			info, err := os.Stat(dir)
			if err != nil {
				t.Fatal(err)
			}
			if !info.IsDir() || strings.HasPrefix(name, ".") || slices.Contains(built, name) {
				continue
			}
			if !slices.ContainsFunc(text, func(l string) bool { return strings.HasPrefix(l, "| `"+name+"/` |") }) {
				t.Errorf("CONTRIBUTING.md has no line for %s/", name)
			}
		}
	}
}

// widest is how many columns a line of Markdown has at most.
const widest = 120

// TestMarkdownFits checks the width of Markdown outside of tables and of fenced blocks, which show
// real output.
func TestMarkdownFits(t *testing.T) {
	err := filepath.WalkDir(root(t), func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if name := d.Name(); d.IsDir() && path != root(t) &&
			(strings.HasPrefix(name, ".") || slices.Contains(built, name)) {
			return filepath.SkipDir
		}
		if d.IsDir() || filepath.Ext(path) != ".md" {
			return nil
		}
		file, fenced := strings.TrimPrefix(path, root(t)+"/"), false
		for i, l := range lines(t, file) {
			if strings.HasPrefix(strings.TrimSpace(l), "```") {
				fenced = !fenced
			}
			if n := utf8.RuneCountInString(l); !fenced && !strings.HasPrefix(l, "|") && n > widest {
				t.Errorf("%s:%d: the line has %d columns", file, i+1, n)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestCommandsAreFound(t *testing.T) {
	got := commands("x",
		strings.Split("```sh\n# a comment\nmake run   # why\ngo test \\\n  ./...\n```\n```yaml\nno: command\n```\n   "+
			"```sh\n   cat >f <<'EOF'\n     two\n   EOF\n   berth ps\n   ```", "\n"))
	want := []command{
		{"x", 3, "make run   # why"},
		{"x", 4, "go test ./..."},
		{"x", 11, "cat >f <<'EOF'\n  two\nEOF"},
		{"x", 14, "berth ps"},
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if words := got[0].words(); !slices.Equal(words, []string{"make", "run"}) {
		t.Errorf("words %q", words)
	}
}
