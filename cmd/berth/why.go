package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
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
	var previous bool
	cmd := &cobra.Command{
		Use:   "why POD",
		Short: "Show what a pod waits for, and each step so far",
		Long: `Show what a pod waits for, the last error, the next retry, and each step so far with how long it took.

The pod may also be one whose manifest was refused.

With --previous, show the steps of the pod before the agent's last restart, or of the last pod of that name. That pod
may be gone.`,
		Example: `  berth why web
  berth why web --previous               # before the agent's restart, or before the pod was replaced
  berth why web -o yaml                  # for programs`,
		Args:              somePod,
		ValidArgsFunction: completePods(&conn, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c := conn.client()
			defer c.Close()
			find := timelineOf
			if previous {
				find = previousOf
			}
			pod, err := onlyPod(cmd.Context(), c, cmd, args, namespace)
			if err != nil {
				return err
			}
			why, err := find(cmd.Context(), c, pod, namespace)
			if err != nil {
				return err
			}
			if out != "" {
				return out.write(cmd.OutOrStdout(), why)
			}
			noteNode(cmd.Context(), c, cmd)
			if err := show.Why(cmd.OutOrStdout(), why, time.Now()); err != nil {
				return err
			}
			return lastWords(cmd.Context(), c, why, cmd.OutOrStdout())
		},
	}
	conn.flag(cmd)
	out.flag(cmd, "json", "yaml")
	namespaceFlag(cmd, &namespace)
	cmd.Flags().BoolVarP(&previous, "previous", "p", false, "the last life of the pod before the present one")
	return cmd
}

// lastLines is how many lines of a crashed container's log are shown.
const lastLines = 5

// lastWords writes the ends of the logs of the containers that have crashed. A container without a
// log is left out.
func lastWords(ctx context.Context, c *client.Client, why *api.Why, w io.Writer) error {
	for _, name := range why.Crashed {
		tail := int64(lastLines)
		body, err := c.Logs(ctx, why.Namespace, why.Name, name, client.LogOptions{Tail: &tail})
		if err != nil {
			continue
		}
		text, err := io.ReadAll(io.LimitReader(body, maxLastWords))
		_ = body.Close()
		if err != nil || len(text) == 0 {
			continue
		}
		if _, err := fmt.Fprintf(w, "\nThe last lines of container %s:\n", name); err != nil {
			return err
		}
		for line := range strings.Lines(string(text)) {
			if _, err := fmt.Fprintln(w, "  "+show.Clean(strings.TrimRight(line, "\n"))); err != nil {
				return err
			}
		}
	}
	return nil
}

// maxLastWords bounds what is shown of a crashed container's log, in bytes.
const maxLastWords = 8 << 10

// previousOf requests the timeline of the last life of a pod before the present one. The pod may be
// gone, and so a name without a namespace is looked for in the default one.
func previousOf(ctx context.Context, c *client.Client, arg, namespace string) (*api.Why, error) {
	pod, err := findPod(ctx, c, arg, namespace)
	if unknown := (*unknownPodError)(nil); errors.As(err, &unknown) {
		namespace, name := splitPod(arg, namespace)
		return c.PreviousWhy(ctx, cmp.Or(namespace, v1.NamespaceDefault), name)
	}
	if err != nil {
		return nil, err
	}
	return c.PreviousWhy(ctx, pod.Namespace, pod.Name)
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
