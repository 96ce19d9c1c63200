package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	logsapi "k8s.io/component-base/logs/api/v1"

	"github.com/berthd/berth/agent/telemetry/logging"
	"github.com/berthd/berth/configs"
)

// slowAgent is an agent whose pods take a while to stop.
type slowAgent struct {
	takes   time.Duration
	stopped bool
	err     error
}

func (p *slowAgent) Shutdown(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(p.takes):
	}
	p.stopped = true
	return p.err
}

func (p *slowAgent) ShutdownLimit() time.Duration { return time.Minute }

func TestLeave(t *testing.T) {
	for name, c := range map[string]struct {
		stopping bool
		agent    slowAgent
		stopped  bool
		took     time.Duration
		logged   string
	}{
		"a restart of the agent leaves pods": {agent: slowAgent{takes: time.Second}},
		"a shutdown stops them": {
			stopping: true,
			agent:    slowAgent{takes: 12 * time.Second},
			stopped:  true,
			took:     12 * time.Second,
		},
		"not for longer than the limit": {
			stopping: true,
			agent:    slowAgent{takes: time.Hour},
			took:     time.Minute,
			logged:   "not all pods",
		},
		"an error is logged": {
			stopping: true,
			agent:    slowAgent{err: errors.New("no runtime")},
			stopped:  true,
			logged:   "no runtime",
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var out bytes.Buffer
				began := time.Now()
				leave(t.Context(), &c.agent, func(context.Context) bool { return c.stopping },
					slog.New(slog.NewTextHandler(&out, nil)))
				if took := time.Since(began); took != c.took || c.agent.stopped != c.stopped {
					t.Errorf("stopped %t after %s", c.agent.stopped, took)
				}
				if !strings.Contains(out.String(), c.logged) || c.logged == "" && out.Len() > 0 {
					t.Errorf("log: %s", &out)
				}
			})
		})
	}
}

func TestReload(t *testing.T) {
	fresh := func(change func(*configs.Config)) *configs.Config {
		c := &configs.Config{}
		change(c)
		return c
	}
	next, loadErr := fresh(func(*configs.Config) {}), error(nil)
	var out bytes.Buffer
	var noted []string
	levels := logging.New(logging.Options{Err: &out})
	r := &reloader{
		note: func(running, read *configs.Config, err error) bool {
			before := noted
			if noted = []string{fmt.Sprint(err)}; err == nil {
				noted = configs.Changed(running, read)
			}
			return !slices.Equal(noted, before)
		},
		running: fresh(func(*configs.Config) {}),
		levels:  levels,
		log:     levels.Logger(),
		load:    func() (*configs.Config, []configs.Warning, error) { return next, nil, loadErr },
		take: func(running, next *configs.Config, changed []string) (*configs.Config, []string) {
			now := *running
			later := slices.DeleteFunc(slices.Clone(changed), func(path string) bool { return path == "registryBurst" })
			if len(later) < len(changed) {
				now.Kubelet.RegistryBurst = next.Kubelet.RegistryBurst
			}
			return &now, later
		},
	}
	ctx := context.Background()
	step := func(level slog.Level, logged string) {
		t.Helper()
		out.Reset()
		r.reload()
		if !r.log.Enabled(ctx, level) || r.log.Enabled(ctx, level-1) || !strings.Contains(out.String(), logged) {
			t.Errorf("log: %s; want level %s, %q", &out, level, logged)
		}
	}
	step(slog.LevelInfo, "changed=0")
	first := r.running
	next = fresh(func(c *configs.Config) { c.Kubelet.Logging.Verbosity = 5 })
	step(-5, "changed=1")
	if first.Kubelet.Logging.Verbosity != 0 {
		t.Error("the agent's own config was written to")
	}
	next = fresh(func(c *configs.Config) {
		c.Kubelet.Logging.VModule = []logsapi.VModuleItem{{FilePattern: "service_test", Verbosity: 6}}
	})
	step(-6, `applied="logging.verbosity logging.vmodule"`)
	next = fresh(func(c *configs.Config) { c.Kubelet.MaxPods, c.Berth.Socket = 3, "/s" })
	step(slog.LevelInfo, `settings="berth:socket maxPods"`)
	// as long as the agent was not restarted
	step(slog.LevelInfo, `settings="berth:socket maxPods"`)
	next = fresh(func(c *configs.Config) { c.Kubelet.MaxPods, c.Kubelet.RegistryBurst = 3, 7 })
	step(slog.LevelInfo, `applied=registryBurst`)
	step(slog.LevelInfo, `settings=maxPods`)
	if r.running.Kubelet.RegistryBurst != 7 || r.running.Kubelet.MaxPods != 0 ||
		strings.Contains(out.String(), "registryBurst") {
		t.Errorf("what was applied is not what counts: %s", &out)
	}
	if !slices.Equal(noted, []string{"maxPods"}) {
		t.Errorf("noted %q", noted)
	}
	loadErr = errors.New("maxPods: no number")
	step(slog.LevelInfo, "config not reloaded")
	if !slices.Equal(noted, []string{"maxPods: no number"}) {
		t.Errorf("noted %q", noted)
	}
	read := func(logged string) {
		t.Helper()
		out.Reset()
		running := r.running
		r.reread()
		if !strings.Contains(out.String(), logged) || logged == "" && out.Len() > 0 || r.running != running {
			t.Errorf("log: %s; want %q, and the same config", &out, logged)
		}
	}
	read("") // it is known
	loadErr = nil
	read("settings=maxPods")
	read("")
	loadErr = errors.New("maxPods: no number")
	read("would not start again")
	next, loadErr = r.running, nil
	read("is the one in force")
}

func TestServiceIn(t *testing.T) {
	for text, want := range map[string]string{
		"0::/system.slice/berth.service\n":                                 "berth.service",
		"12:memory:/a.service\n1:name=systemd:/system.slice/b.service/x\n": "b.service",
		"0::/user.slice/user-0.slice/user@0.service/app.slice/x.scope\n":   "",
		"0::/user.slice/user-0.slice/session-1.scope\n":                    "",
		"": "",
	} {
		if got := serviceIn(text); got != want {
			t.Errorf("%q is of %q, want %q", text, got, want)
		}
	}
}

func TestManPages(t *testing.T) {
	m := manual{release: "1.2-3", date: time.Unix(0, 0).UTC()}
	root := newRoot()
	page := string(m.page(root))
	for _, want := range []string{".TH \"BERTH\" 1 \"1970-01-01\" \"berth 1.2\\-3\"", ".SH COMMANDS", ".B drain"} {
		if !strings.Contains(page, want) {
			t.Errorf("berth(1) has no %q", want)
		}
	}
	if strings.Contains(page, ".B man\n") {
		t.Error("berth(1) names a hidden command")
	}
	drain, _, err := root.Find([]string{"drain"})
	if err != nil {
		t.Fatal(err)
	}
	page = string(m.page(drain))
	for _, want := range []string{
		"berth\\-drain \\- stop all pods", ".B \\-\\-grace", ".SH EXAMPLES", ".BR berth (1)",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("berth-drain(1) has no %q:\n%s", want, page)
		}
	}
	if got := roff("a\n.b\n'c \\ -d"); got != "a\n\\&.b\n\\&'c \\e \\-d" {
		t.Errorf("escaped: %q", got)
	}
}

// TestPodsRunOn checks that an agent in the foreground says so, and a service does not.
func TestPodsRunOn(t *testing.T) {
	for _, c := range []struct {
		running int
		socket  string
		says    bool
	}{{2, "", true}, {0, "", false}, {2, "/run/systemd/notify", false}} {
		t.Setenv("NOTIFY_SOCKET", c.socket)
		var out bytes.Buffer
		sayPodsRunOn(c.running, slog.New(slog.NewTextHandler(&out, nil)))
		if says := strings.Contains(out.String(), "berth drain --stop") && strings.Contains(out.String(), "pods=2"); says !=
			c.says {
			t.Errorf("%+v: %q", c, out.String())
		}
	}
}
