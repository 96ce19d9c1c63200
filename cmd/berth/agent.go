package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime/debug"

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
		Long: `Run the node agent: the daemon that runs the pods of this node. It needs root.

It accepts the config file and the flags of a kubelet as they are. A second document of kind BerthConfiguration in the
config file holds what only berth has. Without --config, the agent reads /etc/berth/config.yaml if the file exists.`,
		Example: `  berth agent
  berth agent --config /etc/berth/config.yaml -v 4`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := needRoot("the agent", os.Geteuid()); err != nil {
				return err
			}
			load := func() (*configs.Config, []configs.Warning, error) {
				return configs.Load(configs.Options{Flags: cmd.Flags()})
			}
			cfg, warnings, err := load()
			levels := newLog(cfg, os.Stdout)
			defer levels.Flush()
			log := levels.Logger()
			for _, w := range warnings {
				log.Warn("config: " + w.String())
			}
			if err != nil {
				return err
			}
			return runAgent(cmd.Context(), &reloader{running: cfg, load: load, levels: levels, log: log})
		},
	}
	configs.AddFlags(cmd.Flags())
	return cmd
}

// needRoot returns an error for a user other than root; who names what needs root.
func needRoot(who string, euid int) error {
	if euid == 0 {
		return nil
	}
	return fmt.Errorf("%s runs pods, which takes root's rights, and this is user %d: use sudo", who, euid)
}

// gcPercent makes the heap smaller, for a little more garbage collection. An agent is idle most of
// the time, and every node has one.
const gcPercent = 40

// runAgent runs the agent until ctx ends, and reports its state to systemd. An agent that was asked
// to end has not failed, however far it had come.
func runAgent(ctx context.Context, r *reloader) error {
	err := runUntil(ctx, r)
	if because(ctx, err) {
		r.log.Info("berth agent ends", "before", err)
		return nil
	}
	return err
}

// because reports whether the only reason of an error is the end of ctx.
func because(ctx context.Context, err error) bool {
	return err != nil && ctx.Err() != nil && (errors.Is(err, context.Canceled) || errors.Is(err, context.Cause(ctx)))
}

// sayPodsRunOn tells the user of an agent in the foreground that the end of the agent is not the
// end of its pods. Who stops a service knows, and systemd starts the next agent.
func sayPodsRunOn(running int, log *slog.Logger) {
	if running > 0 && os.Getenv("NOTIFY_SOCKET") == "" {
		log.Info("the pods run on, and the next agent takes them over: \"berth drain --stop\" stops them, with the flags "+
			"--config and --root-dir of this agent", "pods", running)
	}
}

// runUntil runs the agent until ctx ends. If the machine shuts down, it stops the pods first.
func runUntil(ctx context.Context, r *reloader) error {
	cfg, log := r.running, r.log
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	slog.SetDefault(log)
	klog.SetSlogLogger(r.levels.Libraries())
	asked := ctx // ends when the agent is asked to end; pods may have to be stopped first
	base, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	a, closeAll, err := agent.Assemble(base, cfg, version, log)
	if err != nil {
		return err
	}
	defer closeAll()
	r.take, r.note = a.Reload, a.NoteConfig
	api, err := a.NewServer(version, r.levels.SetVerbosity)
	if err != nil {
		return err
	}
	log.Info("berth agent starts", "version", version, "rootDir", cfg.RootDir,
		"endpoint", cfg.Kubelet.ContainerRuntimeEndpoint)
	group, ctx := errgroup.WithContext(base)
	group.Go(func() error { return api.Run(ctx) })
	group.Go(func() error { return a.Run(ctx) })
	group.Go(func() error { notify(ctx, a, api.Listening(), log); return nil })
	group.Go(func() error { reloads(ctx, r); return nil })
	group.Go(func() error { r.levels.Run(ctx); return nil })
	group.Go(func() error { trim(ctx, log); return nil })
	group.Go(func() error {
		select {
		case <-ctx.Done():
		case <-asked.Done():
			leave(ctx, a, shuttingDown, log)
			sayPodsRunOn(len(a.Pods()), log)
			end()
		}
		return nil
	})
	return group.Wait()
}
