package native

import (
	"slices"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// A command with a terminal knows one, also in a container without.
func TestTermOfCommand(t *testing.T) {
	for name, c := range map[string]struct {
		env  []string
		tty  bool
		want []string
	}{
		"no terminal":       {[]string{"A=b"}, false, []string{"A=b"}},
		"terminal":          {[]string{"A=b"}, true, []string{"A=b", "TERM=xterm"}},
		"the container has": {[]string{"TERM=vt100", "A=b"}, true, []string{"TERM=vt100", "A=b"}},
		"a similar name":    {[]string{"TERMINAL=1"}, true, []string{"TERMINAL=1", "TERM=xterm"}},
	} {
		process := &specs.Process{Env: c.env, Args: []string{"main"}, Terminal: !c.tty}
		cmd := command{args: []string{"sh"}, tty: c.tty}
		cmd.runAs(process)
		if !slices.Equal(process.Env, c.want) || process.Terminal != c.tty || !slices.Equal(process.Args, cmd.args) {
			t.Errorf("%s: the process is %+v, want the environment %q", name, process, c.want)
		}
	}
}
