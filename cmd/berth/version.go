package main

import (
	"errors"
	"fmt"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/berthd/berth/client"
	"github.com/berthd/berth/client/api"
	"github.com/berthd/berth/client/show"
)

// versions is the output of version.
type versions struct {
	Client api.Version  `json:"client"`
	Agent  *api.Version `json:"agent,omitempty"`
	// AgentError says why the agent's version is not known.
	AgentError string `json:"agentError,omitempty"`
}

func newVersion() *cobra.Command {
	var conn connection
	var out output
	var clientOnly bool
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Show the versions of this command, the agent and the runtime",
		Example: `  berth version
  berth version --client                 # no agent is asked`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			v := versions{Client: api.Version{Version: version, GoVersion: runtime.Version()}}
			if !clientOnly {
				c := conn.client()
				defer c.Close()
				agent, err := c.Version(cmd.Context())
				if gone := (*client.NotRunningError)(nil); err != nil && !errors.As(err, &gone) {
					return err
				} else if err != nil {
					v.AgentError = "not running (no answer at " + conn.path() + ")"
				}
				v.Agent = agent
			}
			if out != "" {
				return out.write(cmd.OutOrStdout(), v)
			}
			w := cmd.OutOrStdout()
			fmt.Fprintf(w, "Client:   berth %s (%s)\n", v.Client.Version, v.Client.GoVersion)
			switch {
			case v.AgentError != "":
				fmt.Fprintf(w, "Agent:    %s\n", v.AgentError)
			case v.Agent != nil:
				fmt.Fprintf(w, "Agent:    berth %s (%s) on node %s\n", v.Agent.Version, v.Agent.GoVersion, v.Agent.Node)
				if v.Agent.RuntimeError != "" {
					fmt.Fprintf(w, "Runtime:  not known: %s\n", show.Clean(v.Agent.RuntimeError))
				} else {
					fmt.Fprintf(w, "Runtime:  %s %s\n", v.Agent.Runtime, v.Agent.RuntimeVersion)
				}
			}
			return nil
		},
	}
	conn.flag(cmd)
	out.flag(cmd, "json", "yaml")
	cmd.Flags().BoolVar(&clientOnly, "client", false, "only this command's version; no agent is asked")
	return cmd
}
