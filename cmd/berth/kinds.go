package main

import (
	"context"
	"errors"
	"slices"

	"github.com/spf13/cobra"

	"github.com/berthd/berth/client"
)

// The words for kinds of objects that kubectl takes before names.
func podWords() []string  { return []string{"pod", "pods", "po"} }
func nodeWords() []string { return []string{"node", "nodes", "no"} }

// withoutKind returns the names of pods behind the word for their kind, as kubectl is called. A
// pod that has the word as its name wins over a word that stands alone.
func withoutKind(ctx context.Context, c *client.Client, args []string, namespace string) []string {
	if len(args) == 0 || !slices.Contains(podWords(), args[0]) {
		return args
	}
	if len(args) == 1 && isPod(ctx, c, args[0], namespace) {
		return args
	}
	return args[1:]
}

// onlyPod returns the name of the one pod that the arguments mean, as [withoutKind] reads them.
func onlyPod(
	ctx context.Context, c *client.Client, cmd *cobra.Command, args []string, namespace string,
) (string, error) {
	args = withoutKind(ctx, c, args, namespace)
	if err := onePod(cmd, args); err != nil {
		return "", wrongCall{err}
	}
	return args[0], nil
}

// meansNode reports whether the arguments are the word for the kind of the node, and perhaps the
// node's name, and no pod has that name.
func meansNode(ctx context.Context, c *client.Client, args []string, namespace string) bool {
	return len(args) > 0 && len(args) <= 2 && slices.Contains(nodeWords(), args[0]) &&
		!isPod(ctx, c, args[0], namespace)
}

// isPod reports whether a name is that of a pod. An agent that does not answer will say so later.
func isPod(ctx context.Context, c *client.Client, name, namespace string) bool {
	_, err := findPod(ctx, c, name, namespace)
	unknown := (*unknownPodError)(nil)
	return !errors.As(err, &unknown)
}
