package fake

import (
	"path"
	"regexp"
	"strconv"
	"strings"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// The fake understands a little shell, so that the same pods run on the fake and on a real runtime:
// sleep, echo, exit, true, false, trap, exec, kill -9 $$, dd bs=SIZE as a way to use memory, and
// loops "while …; do …; done", which never end. A program below /no does not exist. Any other
// program runs forever as a container's command, and succeeds at once as a command in a container.

// outcome is what a script does.
type outcome struct {
	output  []string
	after   time.Duration
	forever bool
	code    int32
	trapped bool
	ignore  bool
	onTerm  int32
	memory  int64 // in bytes
	missing string
}

var (
	loop       = regexp.MustCompile(`(?s)^(while|until|for)\s.*`)
	separators = regexp.MustCompile(`\s*(?:;|&&|\n|&)\s*`)
	trap       = regexp.MustCompile(`^trap\s+(?:'([^']*)'|"([^"]*)"|(\S+))\s+.*\b(?:TERM|SIGTERM|15)\b`)
	exitCode   = regexp.MustCompile(`exit\s+(\d+)`)
	quoted     = regexp.MustCompile(`'[^']*'|"[^"]*"`)
)

// shellBehavior reads a container's behavior from its command and arguments. The first process of a
// PID namespace gets no signal that it does not handle. So only SIGKILL ends a command without a
// trap, unless the container shares another PID namespace.
func shellBehavior(config *runtimeapi.ContainerConfig) Behavior {
	argv := append(append([]string{}, config.GetCommand()...), config.GetArgs()...)
	if len(argv) == 0 {
		return Behavior{} // the image's own command, which runs until it is stopped
	}
	o, known := interpret(argv)
	if !known {
		return Behavior{}
	}
	b := Behavior{Output: o.output, Term: Term{Ignore: o.ignore, Code: o.onTerm}}
	if !o.trapped {
		if config.GetLinux().GetSecurityContext().GetNamespaceOptions().GetPid() == runtimeapi.NamespaceMode_CONTAINER {
			b.Term.Ignore = true
		} else {
			b.Term.Code = 143
		}
	}
	if o.missing != "" {
		b.StartErr = notExecutable(o.missing)
	}
	if limit := config.GetLinux().GetResources().GetMemoryLimitInBytes(); limit > 0 && o.memory > limit {
		b.Exit = &Exit{After: o.after, OOM: true}
	} else if !o.forever {
		b.Exit = &Exit{After: o.after, Code: o.code}
	}
	return b
}

// shellExec answers a command that is run in a container.
func shellExec(argv []string) ExecResult {
	if len(argv) == 0 {
		return ExecResult{Err: unknown("exec: no command")}
	}
	o, _ := interpret(argv)
	result := ExecResult{Code: o.code, After: o.after}
	if o.missing != "" {
		result.Err = notExecutable(o.missing)
	}
	if o.forever {
		result.After = 1 << 62
	}
	for _, line := range o.output {
		if text, isErr := strings.CutPrefix(line, stderrPrefix); isErr {
			result.Stderr += text + "\n"
		} else {
			result.Stdout += line + "\n"
		}
	}
	return result
}

// interpret runs a command. known is false if the fake does not know the command's first word.
func interpret(argv []string) (o outcome, known bool) {
	switch path.Base(argv[0]) {
	case "sh", "ash", "bash", "dash":
		if len(argv) >= 3 && strings.HasPrefix(argv[1], "-") && strings.HasSuffix(argv[1], "c") {
			o.script(argv[2])
			return o, true
		}
		return o, false
	}
	if strings.HasPrefix(argv[0], "/no/") {
		o.missing = argv[0]
		return o, true
	}
	known, _ = o.command(argv)
	return o, known
}

func notExecutable(program string) error {
	return unknown("failed to create containerd task: failed to create shim task: OCI runtime create failed: " +
		"runc create failed: " +
		"unable to start container process: error during container init: exec: " + strconv.Quote(program) + ": stat " +
		program +
		": no such file or directory")
}

// script runs the commands of a script until one of them ends it.
func (o *outcome) script(text string) {
	// Separators in quotes separate nothing, so the quoted text is replaced first.
	var kept []string
	text = quoted.ReplaceAllStringFunc(text, func(s string) string {
		kept = append(kept, s)
		return "\x00" + strconv.Itoa(len(kept)-1) + "\x00"
	})
	text = strings.ReplaceAll(strings.TrimSpace(text), ">&2", "\x01")
	for text != "" {
		if loop.MatchString(text) {
			o.forever = true
			return
		}
		statement, rest := text, ""
		if at := separators.FindStringIndex(text); at != nil {
			statement, rest = text[:at[0]], text[at[1]:]
		}
		for i, s := range kept {
			statement = strings.ReplaceAll(statement, "\x00"+strconv.Itoa(i)+"\x00", s)
		}
		if o.statement(strings.ReplaceAll(statement, "\x01", ">&2")) {
			return
		}
		text = strings.TrimSpace(rest)
	}
}

// statement runs one statement of a script and reports whether the script ends with it.
func (o *outcome) statement(text string) (end bool) {
	if m := trap.FindStringSubmatch(text); m != nil {
		o.trapped = true
		action := m[1] + m[2] + strings.Trim(m[3], `'"`)
		o.ignore = !strings.Contains(action, "exit")
		if code := exitCode.FindStringSubmatch(action); code != nil {
			o.onTerm = number(code[1])
		}
		return false
	}
	var argv []string
	for _, word := range strings.Fields(quoted.ReplaceAllStringFunc(text, func(s string) string {
		return strings.ReplaceAll(s[1:len(s)-1], " ", "\x00")
	})) {
		argv = append(argv, strings.ReplaceAll(word, "\x00", " "))
	}
	if len(argv) == 0 {
		return false
	}
	_, end = o.command(argv)
	return end || o.forever
}

// command runs one command. end reports whether the command ends its script.
func (o *outcome) command(argv []string) (known, end bool) {
	args := argv[1:]
	o.code = 0
	switch path.Base(argv[0]) {
	case "true", ":", "wait":
	case "false":
		o.code = 1
	case "exit":
		if len(args) > 0 {
			o.code = number(args[0])
		}
		return true, true
	case "exec":
		if len(args) > 0 {
			known, _ = o.command(args)
			return known, true
		}
	case "kill":
		o.code = 137
		return true, true
	case "dd":
		for _, a := range args {
			if size, found := strings.CutPrefix(a, "bs="); found && size != "" {
				o.memory = max(o.memory, bytes(size))
			}
		}
	case "echo":
		o.echo(args)
	case "sleep":
		d, ok := duration(args)
		o.after += d
		o.forever = !ok
	default:
		return false, false
	}
	return true, false
}

func (o *outcome) echo(args []string) {
	var words []string
	prefix := ""
	for _, a := range args {
		switch {
		case a == ">&2" || a == "1>&2":
			prefix = stderrPrefix
		case strings.HasPrefix(a, ">"):
			return // the output goes to a file
		default:
			words = append(words, a)
		}
	}
	o.output = append(o.output, prefix+strings.Join(words, " "))
}

// duration reads the argument of sleep. ok is false for infinity and for a wrong argument.
func duration(args []string) (d time.Duration, ok bool) {
	for _, a := range args {
		if a[len(a)-1] >= '0' && a[len(a)-1] <= '9' {
			a += "s"
		}
		if days, found := strings.CutSuffix(a, "d"); found {
			a = strconv.Itoa(24*int(number(days))) + "h"
		}
		one, err := time.ParseDuration(a)
		if err != nil {
			return d, false
		}
		d += one
	}
	return d, len(args) > 0
}

// bytes reads a size in dd's format, 0 if the size is wrong. The text must not be empty.
func bytes(s string) int64 {
	unit := map[byte]int64{'k': 1 << 10, 'K': 1 << 10, 'M': 1 << 20, 'G': 1 << 30}[s[len(s)-1]]
	if unit == 0 {
		return int64(number(s))
	}
	return int64(number(s[:len(s)-1])) * unit
}

// number reads a small number, 0 if the text is not one.
func number(s string) int32 {
	n, _ := strconv.ParseInt(s, 10, 32)
	return int32(n)
}
