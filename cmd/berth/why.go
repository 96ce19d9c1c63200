package main

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/spf13/cobra"

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
  berth why web -o yaml`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: completePods(&conn),
		RunE: func(cmd *cobra.Command, args []string) error {
			c := conn.client()
			defer c.Close()
			why, err := story(cmd.Context(), c, args[0], namespace)
			if err != nil {
				return err
			}
			if out != "" {
				return out.write(cmd.OutOrStdout(), why)
			}
			return show.Why(cmd.OutOrStdout(), why, time.Now())
		},
	}
	conn.flag(cmd)
	out.flag(cmd, "json", "yaml")
	cmd.Flags().StringVarP(&namespace, "namespace", "n", "", "the pod's namespace")
	return cmd
}

// story asks for a pod's story; a name that no pod has may be that of a refused manifest.
func story(ctx context.Context, c *client.Client, arg, namespace string) (*api.Why, error) {
	pod, err := findPod(ctx, c, arg, namespace)
	if err == nil {
		return c.Why(ctx, pod.Namespace, pod.Name)
	}
	var unknown *unknownPodError
	if !errors.As(err, &unknown) {
		return nil, err
	}
	name := arg
	if ns, rest, ok := strings.Cut(arg, "/"); ok {
		namespace, name = ns, rest
	}
	manifests, merr := c.Manifests(ctx)
	if merr != nil {
		return nil, merr
	}
	for _, m := range manifests {
		if m.Accepted || m.Kind != "Pod" || m.Name == "" || m.Name != name && !strings.HasPrefix(m.Name, name+"-") {
			continue
		}
		if ns := m.Namespace; namespace == "" || ns == "" || ns == namespace {
			if ns == "" {
				ns = "default"
			}
			return c.Why(ctx, ns, m.Name)
		}
	}
	return nil, err
}
