package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"golang.org/x/sys/unix"

	"github.com/berthd/berth/agent"
	"github.com/berthd/berth/agent/telemetry/journal"
	"github.com/berthd/berth/agent/telemetry/logging"
	"github.com/berthd/berth/configs"
)

// notifySystemd sends a state to systemd (sd_notify(3)). Without systemd it does nothing.
func notifySystemd(log *slog.Logger, state string) {
	if _, err := daemon.SdNotify(false, state); err != nil {
		log.Warn("systemd not told", "state", state, "err", err)
	}
}

// notify reports to systemd that the agent is ready, once the agent and its socket are. Then it
// reports that the agent's main loop runs, as often as systemd asks for it. Without systemd it does
// nothing.
func notify(ctx context.Context, a *agent.Agent, listening <-chan struct{}, log *slog.Logger) {
	for _, ready := range []<-chan struct{}{a.Ready(), listening} {
		select {
		case <-ready:
		case <-ctx.Done():
			return
		}
	}
	notifySystemd(log, daemon.SdNotifyReady)
	interval, err := daemon.SdWatchdogEnabled(false)
	if err != nil || interval == 0 {
		return
	}
	tick := time.NewTicker(interval / 2)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if err := a.Healthy(interval); err != nil {
			log.Error("not healthy: systemd will restart the agent", "err", err)
			continue
		}
		notifySystemd(log, daemon.SdNotifyWatchdog)
	}
}

// newLog returns the log that the config asks for: in a kubelet's format if logging.format is set,
// or else in berth's own, which goes to the journal if standard error is the journal. info is the
// stream of what is no error, if the config asks for two streams; nil for always one.
func newLog(cfg *configs.Config, info io.Writer) *logging.Log {
	o := logging.Options{Err: os.Stderr, Info: info}
	if journal.Connected() {
		o.Journal = func(instead slog.Handler) slog.Handler { return journal.New(instead) }
	}
	if cfg != nil {
		o.Config = cfg.Kubelet.Logging
		if cfg.IsSet("logging.format") {
			o.Format = cfg.Kubelet.Logging.Format
		}
	}
	return logging.New(o)
}

// reloads reads the config again at each SIGHUP until ctx ends. Between them it looks whether the
// config is in force.
func reloads(ctx context.Context, r *reloader) {
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, unix.SIGHUP)
	defer signal.Stop(hup)
	reread := time.NewTicker(rereadEvery)
	defer reread.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-reread.C:
			r.reread()
			continue
		case <-hup:
		}
		notifySystemd(r.log, daemon.SdNotifyReloading)
		r.reload()
		notifySystemd(r.log, daemon.SdNotifyReady)
	}
}

// reloader applies to a running agent what it can of a changed config, and reports the rest.
type reloader struct {
	// running is the current config. load reads the files and flags again.
	running *configs.Config
	load    func() (*configs.Config, []configs.Warning, error)
	levels  *logging.Log
	log     *slog.Logger
	// take applies to the agent what is possible of a config, as agent.Agent's Reload does.
	take func(running, next *configs.Config, changed []string) (now *configs.Config, later []string)
	// note says what was read, so that people see what is not in force. It reports whether that is
	// news.
	note func(running, read *configs.Config, err error) bool
}

// rereadEvery is how often the config is read only to see whether it is in force.
const rereadEvery = time.Minute

// reread reads the config only to see whether it is in force, and logs what is new about that.
func (r *reloader) reread() {
	cfg, _, err := r.load()
	if !r.note(r.running, cfg, err) {
		return
	}
	if err != nil {
		r.log.Error("the config on the disk is refused: the agent goes on with the one that it has, but would not start "+
			"again", "err", err)
		return
	}
	if pending := configs.Changed(r.running, cfg); len(pending) > 0 {
		r.log.Warn("settings of the config on the disk are not in force: a reload or a restart of the agent takes them over",
			"settings", strings.Join(pending, " "))
		return
	}
	r.log.Info("the config on the disk is the one in force")
}

// own reports whether the reloader itself applies the setting.
func own(path string) bool { return path == "logging.verbosity" || path == "logging.vmodule" }

// reload reads the config again once. A wrong config changes nothing.
func (r *reloader) reload() {
	cfg, warnings, err := r.load()
	for _, w := range warnings {
		r.log.Warn("config: " + w.String())
	}
	defer func() { r.note(r.running, cfg, err) }()
	if err != nil {
		r.log.Error("config not reloaded: the agent goes on with the one that it has", "err", err)
		return
	}
	r.levels.SetVerbosity(uint32(cfg.Kubelet.Logging.Verbosity))
	r.levels.SetModules(cfg.Kubelet.Logging.VModule)
	changed := configs.Changed(r.running, cfg)
	others := slices.DeleteFunc(slices.Clone(changed), own)
	taken, later := r.take(r.running, cfg, others)
	now := *taken // the agent has the old config, which nobody may change
	now.Kubelet.Logging.Verbosity = cfg.Kubelet.Logging.Verbosity
	now.Kubelet.Logging.VModule = cfg.Kubelet.Logging.VModule
	r.running = &now
	applied := slices.DeleteFunc(changed, func(path string) bool { return slices.Contains(later, path) })
	if len(later) > 0 {
		r.log.Warn("config reloaded; these settings take a restart of the agent, which disturbs no pod: systemctl "+
			"restart berth",
			"applied", strings.Join(applied, " "), "settings", strings.Join(later, " "))
		return
	}
	r.log.Info("config reloaded", "changed", len(applied), "applied", strings.Join(applied, " "))
}

const (
	// askTimeout limits the question to systemd whether the machine shuts down.
	askTimeout = 3 * time.Second
	// extendEvery is how often the agent asks systemd for more time, and extendBy for how much.
	extendEvery = 5 * time.Second
	extendBy    = 30 * time.Second
)

// shuttingDown reports whether systemd shuts down or restarts the machine; false without systemd.
func shuttingDown(ctx context.Context) bool {
	if _, err := os.Stat("/run/systemd/system"); err != nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	// its exit code is 1 in all states but one
	out, _ := exec.CommandContext(ctx, "systemctl", "is-system-running").Output()
	return strings.TrimSpace(string(out)) == "stopping"
}

// stopper is an agent that can stop its pods for a shutdown.
type stopper interface {
	Shutdown(ctx context.Context) error
	ShutdownLimit() time.Duration
}

// leave stops the pods if the machine shuts down, and asks systemd for the time that this takes. If
// the agent is only stopped or restarted, leave does not stop the pods.
func leave(ctx context.Context, a stopper, stopping func(context.Context) bool, log *slog.Logger) {
	notifySystemd(log, daemon.SdNotifyStopping)
	if !stopping(ctx) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, a.ShutdownLimit())
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- a.Shutdown(ctx) }()
	tick := time.NewTicker(extendEvery)
	defer tick.Stop()
	for {
		notifySystemd(log, fmt.Sprintf("EXTEND_TIMEOUT_USEC=%d\nSTATUS=stopping the pods", extendBy.Microseconds()))
		select {
		case err := <-done:
			if err != nil {
				log.Error("not all pods were stopped before the shutdown", "err", err)
			}
			return
		case <-tick.C:
		}
	}
}
