package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/berthd/berth/agent/node/shutdown"
	"github.com/berthd/berth/agent/volumes"
	"github.com/berthd/berth/client/api"
	"github.com/berthd/berth/configs"
	"github.com/berthd/berth/internal/atomicfile"
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
				err = emptyNode(cmd.Context(), cfg, api.DrainRequest{}, cmd.ErrOrStderr())
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

// removeState removes the agent's own directories. It removes directories that others share only if
// they are empty. It removes nothing beyond a mount point, and no pod's directory that the agent
// did not empty itself.
func removeState(ctx context.Context, cfg *configs.Config) error {
	root := cfg.RootDir
	var errs []error
	if err := removeEmpty(filepath.Join(root, "pods")); err != nil {
		return fmt.Errorf("something of a pod is left: %w", err)
	}
	errs = append(errs, volumes.RemoveDir(ctx, filepath.Join(root, "berth")),
		atomicfile.Remove(filepath.Join(root, shutdown.StateFile), atomicfile.OverCrash))
	for _, dir := range []string{
		filepath.Join(root, "image_manager", "pulling"), filepath.Join(root, "image_manager", "pulled"),
		filepath.Join(root, "image_manager"),
		filepath.Join(root, "plugins"), filepath.Join(root, "plugins_registry"), filepath.Join(root, "seccomp"), root,
		cfg.Kubelet.PodLogsDir, cfg.Berth.ContainerLogsDir,
	} {
		_ = removeEmpty(dir) // files of others stay
	}
	return errors.Join(errs...)
}

// removeEmpty removes a directory if it is empty. A missing directory is no error.
func removeEmpty(dir string) error {
	if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
