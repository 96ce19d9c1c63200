package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"

	"github.com/spf13/cobra"
	"k8s.io/klog/v2"

	"github.com/berthd/berth/client"
)

// socketEnv is the environment variable with the agent's socket, if --socket is not given.
const socketEnv = "BERTH_SOCKET"

// newRoot returns the whole command line.
func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "berth",
		Short: "Runs Kubernetes pods on this node, with or without a cluster",
		Long: `berth runs Kubernetes pods on this node, with or without a cluster.

"berth agent" is the daemon. The other commands show what it does and reach into its pods; no API server is needed.
POD is a pod's name, NAMESPACE/NAME, or the name in a static pod's manifest. POD/CONTAINER is a container of it.

The exit code is 0 if a command succeeds, 1 if it fails, and 2 if it is called wrongly. The help of a command says
where its exit codes differ.`,
		Example: `  berth ps                               # the node's pods
  berth why web                          # what a pod waits for
  berth logs -f web                      # what it prints
  berth exec -it web -- sh               # a shell in it
  berth run job.yaml --once              # run one manifest and exit with its code`,
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          noVerb,
		PersistentPreRun: func(cmd *cobra.Command, _ []string) {
			log := plainLog{}
			if cmd.Name() == "port-forward" {
				log.w = cmd.ErrOrStderr() // it is the only place for errors of a connection
			}
			klog.SetSlogLogger(slog.New(log)) // agent and run replace it
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	groups := []struct {
		id, title string
		verbs     []*cobra.Command
	}{
		{
			"pods", "Pods:",
			[]*cobra.Command{
				newPs(), newDescribe(), newWhy(), newLogs(), newExec(), newAttach(), newDebug(), newPortForward(),
				newCp(), newRestart(), newStop(), newStart(), newTop(), newEvents(),
			},
		},
		{"manifests", "Manifests:", []*cobra.Command{newManifests(), newValidate(), newDiff(), newRun(), newFields()}},
		{
			"node", "Node:",
			[]*cobra.Command{
				newStatus(), newAgent(), newDoctor(), newDrain(), newImages(), newCRI(), newPull(), newRmi(),
				newVersion(), newMan(), newPurge(),
			},
		},
	}
	for _, g := range groups {
		root.AddGroup(&cobra.Group{ID: g.id, Title: g.title})
		for _, verb := range g.verbs {
			verb.GroupID = g.id
			root.AddCommand(verb)
		}
	}
	root.Version = version // also as a flag, as in the kubelet; "berth version" asks the agent, too
	root.SetVersionTemplate("berth {{.Version}}\n")
	root.SetCompletionCommandGroupID("node")
	root.SetHelpCommandGroupID("node")
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		if args := cmd.Flags().Args(); !cmd.HasParent() && len(args) > 0 {
			return noVerb(cmd, args) // the flag is that of a verb that does not exist
		}
		return noFlag(cmd, err)
	})
	addHelp(root)
	return root
}

// addHelp adds the verbs help and completion, which refuse what they do not know.
func addHelp(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	for _, cmd := range root.Commands() {
		switch cmd.Name() {
		case "help":
			cmd.Args = someCommand
		case "completion":
			cmd.Args = func(cmd *cobra.Command, args []string) error {
				return someCommand(cmd, append([]string{"completion"}, args...))
			}
			cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
		}
	}
}

// someCommand requires the path of a command, as help takes it; an empty path is the root.
func someCommand(cmd *cobra.Command, args []string) error {
	found, rest, err := cmd.Root().Find(args)
	if err != nil {
		return err
	}
	if len(rest) > 0 {
		return fmt.Errorf("unknown command %q for %q", rest[0], found.CommandPath())
	}
	return nil
}

// connection is the agent that a verb calls.
type connection struct{ agentFlags }

// flag adds --socket and the flags of the config to a verb. A config that is named and cannot be
// read is an error.
func (c *connection) flag(cmd *cobra.Command) {
	c.addTo(cmd, "config", "config-dir")
	check := cmd.PreRunE
	cmd.PreRunE = func(cmd *cobra.Command, args []string) error {
		if c.given("config", "config-dir") {
			if _, _, err := c.load(); err != nil {
				return fmt.Errorf("looking for the agent in its config: %w", err)
			}
		}
		if check != nil {
			return check(cmd, args)
		}
		return nil
	}
}

// path returns the socket to ask at. Without a config that can be read, it is the default.
func (c *connection) path() string {
	if cfg, _, err := c.load(); err == nil {
		return cfg.Berth.Socket
	}
	return cmp.Or(c.socket, os.Getenv(socketEnv), client.DefaultSocket)
}

func (c *connection) client() *client.Client { return client.New(c.path()) }

// noArgs requires that there are no arguments.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("%s takes no argument, and was given %q", cmd.CommandPath(), args)
	}
	return nil
}

// exactly requires n arguments; what names them.
func exactly(n int, what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != n {
			return fmt.Errorf("give %s, and nothing else: %s", what, cmd.UseLine())
		}
		return nil
	}
}

// onePod requires a pod as the only argument.
func onePod(cmd *cobra.Command, args []string) error {
	if len(args) > 1 {
		return fmt.Errorf("one POD only, not %q: %s", args, cmd.UseLine())
	}
	return somePod(cmd, args)
}

// somePod requires a pod as the first argument.
func somePod(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return fmt.Errorf("which pod? give POD, as \"berth ps\" lists them: %s", cmd.UseLine())
	}
	return nil
}

// interrupted is the exit code of a command that Ctrl-C ended (the shell's 128 + SIGINT).
const interrupted = 130

// ended makes an end by Ctrl-C silent.
func ended(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil && errors.Is(context.Cause(ctx), context.Canceled) {
		return &exitError{code: interrupted}
	}
	return err
}
