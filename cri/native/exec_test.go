package native

import (
	"context"
	"errors"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/containerd/containerd/v2/client"
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

// unstartable is a command that cannot be started, and of which containerd tells no end.
type unstartable struct {
	client.Process
	waiting context.Context //nolint:containedctx // what a test looks at
}

func (u *unstartable) Wait(ctx context.Context) (<-chan client.ExitStatus, error) {
	u.waiting = ctx
	return make(chan client.ExitStatus), nil
}

func (*unstartable) Start(context.Context) error { return errors.New("no such program") }

func (*unstartable) Kill(context.Context, syscall.Signal, ...client.KillOpts) error {
	return notFound("command", "a")
}

func (*unstartable) Delete(context.Context, ...client.ProcessDeleteOpts) (*client.ExitStatus, error) {
	return nil, notFound("command", "a")
}

// A command that cannot be started leaves nobody who waits for its end.
func TestNobodyWaitsForUnstartedCommand(t *testing.T) {
	r := fakeContainerd{}.runtime(t)
	started := &unstartable{}
	c := r.runs(t, "a", &fakeTask{id: "a", command: started})
	_, err := r.exec(t.Context(), c, command{args: []string{"none"}})
	if err == nil || !strings.Contains(err.Error(), "no such program") {
		t.Errorf("got %v", err)
	}
	if started.waiting.Err() == nil {
		t.Error("somebody still waits for its end")
	}
}
