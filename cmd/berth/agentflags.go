package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/berthd/berth/client"
	"github.com/berthd/berth/configs"
)

// agentFlags are the flags with which a verb finds the config of the agent, and so the agent.
type agentFlags struct {
	set *pflag.FlagSet
	// socket is the value of --socket.
	socket string
}

// socketUsage describes --socket.
const socketUsage = "the agent's socket (also $" + socketEnv + "; default: the config's, " + client.DefaultSocket + ")"

// addTo adds --socket and the flags of the config to a verb, or only those with the given names.
func (f *agentFlags) addTo(cmd *cobra.Command, only ...string) {
	cmd.Flags().StringVar(&f.socket, "socket", "", socketUsage)
	if len(only) == 0 {
		only = []string{"config", "config-dir", "root-dir", "container-runtime-endpoint"}
	}
	some := pflag.NewFlagSet("config", pflag.ContinueOnError)
	configs.AddFlags(some, only...)
	some.VisitAll(cmd.Flags().AddFlag)
	f.set = cmd.Flags() // this set knows which flags were given; some does not
}

// load reads the config as the agent reads it. The socket in it is the one to ask at: that of
// --socket, of the config that --config or --config-dir names, of $BERTH_SOCKET, or else that of
// the default config. What the command line says is stronger than the environment.
func (f *agentFlags) load() (*configs.Config, []configs.Warning, error) {
	cfg, warnings, err := configs.Load(configs.Options{Flags: f.set})
	if err != nil {
		return nil, warnings, err
	}
	environment := os.Getenv(socketEnv)
	if f.given("config", "config-dir") {
		environment = ""
	}
	cfg.Berth.Socket = cmp.Or(f.socket, environment, cfg.Berth.Socket)
	return cfg, warnings, nil
}

// given reports whether the command line has one of the flags.
func (f *agentFlags) given(names ...string) bool {
	for _, name := range names {
		if f.set.Changed(name) {
			return true
		}
	}
	return false
}

// same returns an error if the flags ask for another agent than the one that answers. An agent is
// known by its root directory, because no two agents can have the same. Without an agent there is
// no error.
func (f *agentFlags) same(ctx context.Context, c *client.Client, cfg *configs.Config) error {
	if !f.given("config", "config-dir", "root-dir") {
		return nil
	}
	v, err := c.Version(ctx)
	if gone := (*client.NotRunningError)(nil); errors.As(err, &gone) {
		return nil
	}
	if err != nil {
		return err
	}
	if sameDir(v.RootDir, cfg.RootDir) {
		return nil
	}
	return fmt.Errorf("the agent that answers at %s is another one: its root directory is %s, and that of this "+
		"command line is %s: give the --socket of the agent that is meant, or its --root-dir",
		cfg.Berth.Socket, cmp.Or(v.RootDir, "not known"), cfg.RootDir)
}

// sameDir reports whether two paths name the same directory.
func sameDir(x, y string) bool {
	if filepath.Clean(x) == filepath.Clean(y) {
		return true
	}
	xi, err := os.Stat(x)
	if err != nil {
		return false
	}
	yi, err := os.Stat(y)
	return err == nil && os.SameFile(xi, yi)
}
