package main

import (
	"context"
	"log/slog"
	"os"
	"runtime/debug"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	"k8s.io/klog/v2"

	"github.com/berthd/berth/agent"
	"github.com/berthd/berth/configs"
)

func newAgent() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "agent",
		Short: "Run the node agent: the daemon that runs this node's pods",
		Long: `Run the node agent: the daemon that runs this node's pods.

It takes a kubelet's config file and flags as they are. A second document in the config file, of kind BerthConfiguration, has what the kubelet's
does not. Without --config, /etc/berth/config.yaml is read where it exists.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, warnings, err := configs.Load(configs.Options{Flags: cmd.Flags()})
			log := newLogger(cfg, os.Stderr)
			for _, w := range warnings {
				log.Warn("config: " + w.String())
			}
			if err != nil {
				return err
			}
			return runAgent(cmd.Context(), cfg, log)
		},
	}
	configs.AddFlags(cmd.Flags())
	return cmd
}

// gcPercent makes the heap smaller at the cost of a little more collecting: an agent is idle most of the time, and there is one on every node.
const gcPercent = 40

// runAgent runs the agent until ctx ends, and tells systemd how it is.
func runAgent(ctx context.Context, cfg *configs.Config, log *slog.Logger) error {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	slog.SetDefault(log)
	klog.SetSlogLogger(log)
	a, closeAll, err := agent.Assemble(ctx, cfg, version, log)
	if err != nil {
		return err
	}
	defer closeAll()
	api, err := a.NewServer(version)
	if err != nil {
		return err
	}
	log.Info("berth agent starts", "version", version, "rootDir", cfg.RootDir, "endpoint", cfg.Kubelet.ContainerRuntimeEndpoint)
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return api.Run(ctx) })
	group.Go(func() error { return a.Run(ctx) })
	group.Go(func() error { notify(ctx, a, log); return nil })
	group.Go(func() error { trim(ctx, log); return nil })
	err = group.Wait()
	if _, nerr := daemon.SdNotify(false, daemon.SdNotifyStopping); nerr != nil {
		log.Debug("systemd not told", "err", nerr)
	}
	return err
}

// notify tells systemd that the agent is ready once it is, and then, as often as systemd asks for it, that its main loop turns. Where there is no
// systemd it does nothing.
func notify(ctx context.Context, a *agent.Agent, log *slog.Logger) {
	select {
	case <-a.Ready():
	case <-ctx.Done():
		return
	}
	if _, err := daemon.SdNotify(false, daemon.SdNotifyReady); err != nil {
		log.Warn("systemd not told that the agent is ready", "err", err)
	}
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
		if _, err := daemon.SdNotify(false, daemon.SdNotifyWatchdog); err != nil {
			log.Warn("systemd's watchdog not fed", "err", err)
		}
	}
}

// newLogger returns the logger that the config asks for: text or JSON, to w; -v above 3 shows debug messages.
func newLogger(cfg *configs.Config, w *os.File) *slog.Logger {
	opts := &slog.HandlerOptions{Level: slog.LevelInfo}
	if cfg != nil && cfg.Kubelet.Logging.Verbosity > 3 {
		opts.Level = slog.LevelDebug
	}
	if cfg != nil && cfg.Kubelet.Logging.Format == "json" {
		return slog.New(slog.NewJSONHandler(w, opts))
	}
	return slog.New(slog.NewTextHandler(w, opts))
}
