package main

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/berthd/berth/client/api"
	"github.com/berthd/berth/configs"
)

// newPurge is for the packages' scripts. Users have "berth drain --stop".
func newPurge() *cobra.Command {
	var flags agentFlags
	cmd := &cobra.Command{
		Use:    "purge",
		Short:  "Stop all pods and remove everything that the agent keeps on this machine",
		Hidden: true,
		Args:   noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := needRoot("removing pods", os.Geteuid()); err != nil {
				return err
			}
			cfg, _, err := flags.load()
			if err != nil {
				return err
			}
			if anyPods(cfg) {
				err = emptyNode(cmd.Context(), cfg, api.DrainRequest{}, logAbove(slog.LevelWarn, cmd.ErrOrStderr()))
			}
			return errors.Join(err, removeState(context.WithoutCancel(cmd.Context()), cfg))
		},
	}
	flags.addTo(cmd)
	return cmd
}

// anyPods reports whether there may be pods of this root directory, because an agent ran here. Only
// then is a runtime needed.
func anyPods(cfg *configs.Config) bool {
	_, err := os.Stat(filepath.Join(cfg.RootDir, "berth"))
	return err == nil
}

// removeState removes the agent's own files. It removes directories that others share only if they
// are empty.
func removeState(ctx context.Context, cfg *configs.Config) error {
	err := removeRootFiles(ctx, cfg.RootDir)
	if errors.Is(err, errPodLeft) {
		return err
	}
	for _, dir := range []string{cfg.RootDir, cfg.Kubelet.PodLogsDir, cfg.Berth.ContainerLogsDir} {
		_ = removeEmpty(dir) // files of others stay
	}
	return err
}
