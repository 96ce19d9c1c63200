// Command testapp is what the tests run in containers: a server to probe, and small commands for
// hooks, signals and failures.
//
//	testapp serve   [flags]       an HTTP server; see serve.go for its flags and paths
//	testapp grpc    [flags]       a gRPC health server
//	testapp sleep   [DURATION]    waits (forever without one); ends with 0 on SIGTERM
//	testapp trap    [DURATION]    logs every signal; with a duration it ends that long after
//	                              SIGTERM, else only SIGKILL ends it
//	testapp exit    CODE [DURATION] [MESSAGE]
//	                              waits, writes the termination message, ends with the code
//	testapp alloc   MIB           takes that much memory, then waits
//	testapp log     LINES [BYTES] writes numbered lines, odd ones to stdout and even ones to stderr
//	testapp flood   RATE BYTES [LINES]
//	                              writes numbered lines of that length, RATE bytes a second, then
//	                              waits; without LINES it never stops
//	testapp write   FILE TEXT     appends a line
//	testapp alone   LOCK FILE TEXT COMMAND…
//	                              appends "start TEXT" to the file and becomes the command, with the
//	                              lock; appends "overlap TEXT…" before if another process has it
//	testapp cat     FILE…         prints files
//	testapp wait    FILE          waits until the file exists
//	testapp swap    A B …         exchanges files of these names, without a pause
//	testapp env                   prints the environment, sorted
//	testapp get     URL           prints an HTTP answer; ends with 1 unless it is 2xx
package main

import (
	"errors"
	"fmt"
	"os"
)

// exitError has the exit code of the process.
type exitError int

// Error returns a text with the code.
func (e exitError) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

func main() {
	err := run(os.Args[1:])
	var code exitError
	switch {
	case errors.As(err, &code):
		os.Exit(int(code))
	case err != nil:
		fmt.Fprintln(os.Stderr, "testapp:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) == 0 {
		return errors.New("a command is missing: serve, grpc, sleep, trap, exit, alloc, log, flood, write, alone, " +
			"cat, wait, swap, env or get")
	}
	commands := map[string]func(args []string) error{
		"serve": serve, "grpc": serveGRPC, "sleep": sleep, "trap": trap, "exit": exit, "alloc": alloc,
		"log": logLines, "flood": flood, "write": write, "alone": alone, "cat": cat, "wait": wait,
		"swap": swap, "env": env, "get": get,
	}
	command, ok := commands[args[0]]
	if !ok {
		return fmt.Errorf("unknown command %q", args[0])
	}
	return command(args[1:])
}
