package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/berthd/berth/client/api"
	"github.com/berthd/berth/configs"
)

// newPurge is for the packages' scripts, and for users without a package.
func newPurge() *cobra.Command {
	var flags agentFlags
	var yes bool
	cmd := &cobra.Command{
		Use:   "purge",
		Short: "Stop all pods and remove what the agent keeps on this machine",
		Long: `Stop all pods of a node whose agent has ended, and remove everything that the agent keeps on this machine: its
files, and the logs and cgroups of the pods. Manifests, images, and the files of others stay.

On a terminal, purge asks before it does that.`,
		Example: `  berth drain --stop && berth purge      # before berth itself is removed`,
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := needRoot("removing pods", os.Geteuid()); err != nil {
				return err
			}
			if term.IsTerminal(int(os.Stdin.Fd())) && !yes && !isSure(cmd.InOrStdin(), cmd.ErrOrStderr()) {
				return errors.New("nothing was done")
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
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	return cmd
}

// isSure asks whether somebody wants to lose what a purge removes.
func isSure(in io.Reader, out io.Writer) bool {
	fmt.Fprint(out, "This stops all pods of the node and removes their files and logs. Go on? [y/N] ")
	answer, _ := bufio.NewReader(in).ReadString('\n') // without an answer nothing is done
	return slices.Contains([]string{"y", "yes"}, strings.ToLower(strings.TrimSpace(answer)))
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
