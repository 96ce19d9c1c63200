package docs

import (
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/berthd/berth/test/env"
)

// verbLine is a verb's line in the program's help.
var verbLine = regexp.MustCompile(`(?m)^  ([a-z][a-z-]+) +[A-Z]`)

// help returns what a verb's help says; empty for the program's own.
func help(t *testing.T, binary, verb string) string {
	t.Helper()
	args := []string{"--help"}
	if verb != "" {
		args = []string{verb, "--help"}
	}
	out, err := exec.CommandContext(t.Context(), binary, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("berth %s: %v, %s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// verbs returns the verbs that the program's help lists, but not those of the library that makes
// it.
func verbs(t *testing.T, binary string) []string {
	t.Helper()
	var out []string
	for _, m := range verbLine.FindAllStringSubmatch(help(t, binary, ""), -1) {
		if m[1] != "help" && m[1] != "completion" {
			out = append(out, m[1])
		}
	}
	return out
}

// examples returns the commands of a help's examples.
func examples(verb, text string) []command {
	_, rest, _ := strings.Cut(text, "\nExamples:\n")
	block, _, _ := strings.Cut(rest, "\n\n")
	var out []command
	for line := range strings.Lines(block) {
		if l := strings.TrimSpace(line); l != "" {
			out = append(out, command{file: "berth " + verb + " --help", text: l})
		}
	}
	return out
}

// TestExamplesExist: each verb has examples, whose verbs and flags are there.
func TestExamplesExist(t *testing.T) {
	binary, err := env.Binary(t.Context(), root(t))
	if err != nil {
		t.Fatal(err)
	}
	found := verbs(t, binary)
	if len(found) < 10 {
		t.Errorf("the help lists only %q: is it still read rightly?", found)
	}
	for _, verb := range append(found, "") {
		list := examples(verb, help(t, binary, verb))
		if len(list) == 0 {
			t.Errorf("berth %s has no examples", verb)
		}
		for _, c := range list {
			first, _, _ := strings.Cut(c.text, " | ")
			first, _, _ = strings.Cut(first, " && ")
			checkBerth(t, command{file: c.file, text: first}, binary)
		}
	}
}

// TestHelpFits: help is read on terminals of 160 columns at the most, and says of each flag what it
// does.
func TestHelpFits(t *testing.T) {
	binary, err := env.Binary(t.Context(), root(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, verb := range append(verbs(t, binary), "") {
		for line := range strings.Lines(help(t, binary, verb)) {
			if line = strings.TrimRight(line, "\n"); len(line) > 160 {
				t.Errorf("berth %s --help: a line has %d bytes: %s", verb, len(line), line)
			}
			if regexp.MustCompile(`^ +(-\w, )?--[\w-]+( \w+)?$`).MatchString(line) {
				t.Errorf("berth %s --help says nothing of the flag in %q", verb, line)
			}
		}
	}
}
