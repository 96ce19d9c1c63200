package main

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"
	v1 "k8s.io/api/core/v1"

	"github.com/berthd/berth/client"
	"github.com/berthd/berth/client/api"
	"github.com/berthd/berth/client/show"
)

func newWhy() *cobra.Command {
	var conn connection
	var out output
	var namespace string
	cmd := &cobra.Command{
		Use:   "why POD",
		Short: "Show what a pod waits for, and each step so far",
		Long: `Show what a pod waits for, the last error, the next retry, and each step so far with how long it took.

The pod may also be one whose manifest was refused.`,
		Example: `  berth why web
  berth why web -o yaml                  # for programs`,
		Args:              onePod,
		ValidArgsFunction: completePods(&conn, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c := conn.client()
			defer c.Close()
			why, err := timelineOf(cmd.Context(), c, args[0], namespace)
			if err != nil {
				return err
			}
			if out != "" {
				return out.write(cmd.OutOrStdout(), why)
			}
			noteNode(cmd.Context(), c, cmd)
			return show.Why(cmd.OutOrStdout(), why, time.Now())
		},
	}
	conn.flag(cmd)
	out.flag(cmd, "json", "yaml")
	namespaceFlag(cmd, &namespace)
	return cmd
}

// timelineOf requests a pod's timeline. A name that no pod has may be that of a refused manifest.
func timelineOf(ctx context.Context, c *client.Client, arg, namespace string) (*api.Why, error) {
	pod, err := findPod(ctx, c, arg, namespace)
	if err == nil {
		return c.Why(ctx, pod.Namespace, pod.Name)
	}
	var unknown *unknownPodError
	if errors.As(err, &unknown) && unknown.manifest != nil {
		return c.Why(ctx, cmp.Or(unknown.manifest.Namespace, v1.NamespaceDefault), unknown.manifest.Name)
	}
	return nil, err
}
