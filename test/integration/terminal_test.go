//go:build integration

package integration

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/berthd/berth/test/env"
)

// cliTerminal checks that a shell on a terminal has the terminal's size, follows its changes, gets
// Ctrl-C, and leaves the terminal as before.
func cliTerminal(t *testing.T, _ *env.Env, a *env.Agent) {
	term := env.OpenTerminal(t)
	before := term.Settings(t)
	cmd := exec.CommandContext(t.Context(), binary(t, a), "exec", "--socket", a.Socket, "-it", "server", "-c", "shell",
		"--", "sh")
	if err := term.Start(cmd); err != nil {
		t.Fatal(err)
	}
	term.Type(t, "tty\n")
	term.WaitFor(t, "/dev/pts/")
	hasSize := func(size string) {
		t.Helper()
		env.Eventually(t, "the size "+size, func() error { // the size comes after the shell's start
			answers := strings.Count(term.Shown(), "size ")
			term.Type(t, "echo si''ze $(stty size)\n")
			env.Eventually(t, "an answer", func() error {
				if strings.Count(term.Shown(), "size ") == answers {
					return errors.New("there is none")
				}
				return nil
			})
			if !strings.Contains(term.Shown(), "size "+size) {
				return fmt.Errorf("it shows %q", term.Shown())
			}
			return nil
		})
	}
	hasSize("24 80")
	if term.Settings(t).Lflag&unix.ECHO != 0 {
		t.Error("the local terminal echoes, too")
	}
	term.Resize(t, 100, 40)
	hasSize("40 100")
	term.Type(t, "echo sle''eps; sleep 1000; echo wo''ken $?\n")
	term.WaitFor(t, "sleeps")
	// before that, the shell gets Ctrl-C
	env.Eventually(t, "the sleep to be in the foreground", func() error {
		if out := inside(t, a, "server", "shell", "ps"); !strings.Contains(out, "sleep 1000") {
			return fmt.Errorf("there is %s", out)
		}
		return nil
	})
	term.Type(t, env.CtrlC)
	term.Type(t, "echo go''es on\n")
	term.WaitFor(t, "goes on")
	term.Type(t, "exit 7\n")
	err := cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != 7 {
		t.Errorf("the shell ended with 7, berth with %d, %v, %q", code, err, term.Shown())
	}
	if after := term.Settings(t); after != before {
		t.Errorf("the terminal was %+v and is %+v", before, after)
	}
	if out := inside(t, a, "server", "shell", "ps"); strings.Contains(out, "sleep 1000") {
		t.Errorf("Ctrl-C left %s", out)
	}
}

// cliInterrupt checks that without a terminal Ctrl-C ends berth exec, which prints what happens to
// the command: the command's input ends, and otherwise containerd leaves the command alone.
func cliInterrupt(t *testing.T, _ *env.Env, a *env.Agent) {
	in, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	defer w.Close()
	for name, c := range map[string]struct {
		args []string
		ends bool
	}{
		"reader": {[]string{"-i", "server", "-c", "shell", "--", "sh", "-c", "echo begun; cat #reader"}, true},
		"other": {
			[]string{"server", "-c", "shell", "--", "sh", "-c", "echo $$ >/tmp/left; echo begun; exec sleep 1234"},
			false,
		},
	} {
		x := begin(t, a, in, append([]string{"exec"}, c.args...)...)
		x.waitOut(t, "begun\n")
		x.interrupt(t)
		if !strings.Contains(x.errOut.String(),
			"The command may go on in the container; with -it, Ctrl-C goes to the command.") {
			t.Errorf("%s: it says %q", name, x.errOut.String())
		}
		mark := map[string]string{"reader": "#reader", "other": "sleep 1234"}[name]
		if c.ends {
			env.Eventually(t, "the command to end", func() error {
				if out := inside(t, a, "server", "shell", "ps"); strings.Contains(out, mark) {
					return fmt.Errorf("there is %s", out)
				}
				return nil
			})
		} else if out := inside(t, a, "server", "shell", "ps"); !strings.Contains(out, mark) {
			t.Errorf("the help says that the runtime leaves the command running, but there is %s", out)
		}
	}
	inside(t, a, "server", "shell", "sh", "-c", "kill $(cat /tmp/left)")
}
