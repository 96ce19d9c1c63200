package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/berthd/berth/client"
)

// socketEnv names the agent's socket where --socket does not.
const socketEnv = "BERTH_SOCKET"

// newRoot returns the whole command line.
func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "berth",
		Short: "Runs Kubernetes pods on this node, with or without a cluster",
		Long: `berth runs Kubernetes pods on this node, with or without a cluster.

"berth agent" is the daemon. The other commands show what it does and reach into its pods; no API server is needed.
POD is a pod's name, NAMESPACE/NAME, or the name in a static pod's manifest.`,
		Example: `  berth ps                       # the node's pods
  berth why web                  # what a pod waits for
  berth logs -f web              # what it prints
  berth exec -it web -- sh       # a shell in it
  berth run pod.yaml --once      # run one manifest and exit with its code`,
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          cobra.NoArgs,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	groups := []struct {
		id, title string
		verbs     []*cobra.Command
	}{
		{"pods", "Pods:", []*cobra.Command{newPs(), newDescribe(), newWhy(), newLogs(), newExec(), newAttach(), newPortForward(), newEvents()}},
		{"manifests", "Manifests:", []*cobra.Command{newManifests(), newValidate(), newDiff(), newRun()}},
		{"node", "Node:", []*cobra.Command{newAgent(), newImages(), newVersion()}},
	}
	for _, g := range groups {
		root.AddGroup(&cobra.Group{ID: g.id, Title: g.title})
		for _, verb := range g.verbs {
			verb.GroupID = g.id
			root.AddCommand(verb)
		}
	}
	root.SetCompletionCommandGroupID("node")
	root.SetHelpCommandGroupID("node")
	return root
}

// connection is the agent that a verb talks to.
type connection struct{ socket string }

// flag adds --socket to a verb.
func (c *connection) flag(cmd *cobra.Command) {
	def := os.Getenv(socketEnv)
	if def == "" {
		def = client.DefaultSocket
	}
	cmd.Flags().StringVar(&c.socket, "socket", def, "the agent's socket (also $"+socketEnv+")")
}

func (c *connection) client() *client.Client { return client.New(c.socket) }

// output is a verb's -o.
type output string

// flag adds -o; allowed are the formats, of which the empty one is always there.
func (o *output) flag(cmd *cobra.Command, allowed ...string) {
	cmd.Flags().StringVarP((*string)(o), "output", "o", "", "output format: "+strings.Join(allowed, ", "))
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(allowed, cobra.ShellCompDirectiveNoFileComp))
	check := cmd.PreRunE
	cmd.PreRunE = func(cmd *cobra.Command, args []string) error {
		if *o != "" && !slices.Contains(allowed, string(*o)) {
			return fmt.Errorf("-o %s is not known: use %s", *o, strings.Join(allowed, ", "))
		}
		if check != nil {
			return check(cmd, args)
		}
		return nil
	}
}

// interrupted is the exit code of a command that Ctrl-C ended, the shell's 128 + SIGINT.
const interrupted = 130

// ended makes Ctrl-C a silent end.
func ended(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil && errors.Is(context.Cause(ctx), context.Canceled) {
		return &exitError{code: interrupted}
	}
	return err
}
