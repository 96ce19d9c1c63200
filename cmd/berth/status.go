package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/berthd/berth/client"
	"github.com/berthd/berth/client/api"
	"github.com/berthd/berth/client/show"
)

// needsPerson is the exit code of status if something on the node needs a person. It differs from
// the code of an agent that does not answer.
const needsPerson = 3

func newStatus() *cobra.Command {
	var conn connection
	var out output
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the state of this node on one screen, and what needs a person",
		Long: `Show the agent, the container runtime, the cluster, the manifests and the pods of this node on one screen, and
what needs a person.

The exit code is for monitoring: 0 if all is well, 3 if something needs a person, 1 if the agent does not answer.`,
		Example: `  berth status
  berth status -o json                   # for programs`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c := conn.client()
			defer c.Close()
			st, err := c.Status(cmd.Context())
			if err != nil {
				return err
			}
			if out != "" {
				err = out.write(cmd.OutOrStdout(), st)
			} else {
				err = show.Status(cmd.OutOrStdout(), st, time.Now())
			}
			if err == nil && len(st.Attention) > 0 {
				return &exitError{code: needsPerson}
			}
			return err
		},
	}
	conn.flag(cmd)
	out.flag(cmd, "json", "yaml")
	return cmd
}

// noteNode writes what people must know to read what follows: the runtime is silent, so what
// follows is old, or the node is drained. An agent that cannot say it says nothing.
func noteNode(ctx context.Context, c *client.Client, cmd *cobra.Command) { askNode(ctx, c, cmd)() }

// askNode asks for what noteNode writes. The caller calls write after it has asked for what
// follows, so that people wait for both at the same time.
func askNode(ctx context.Context, c *client.Client, cmd *cobra.Command) (write func()) {
	answer := make(chan *api.Notes, 1)
	go func() {
		notes, _ := c.Notes(ctx)
		answer <- notes
	}()
	return func() {
		if notes := <-answer; notes != nil {
			show.Notes(cmd.ErrOrStderr(), notes, time.Now())
		}
	}
}
