package main

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

func newPull() *cobra.Command {
	var conn connection
	cmd := &cobra.Command{
		Use:   "pull IMAGE...",
		Short: "Pull images onto this node, before a pod needs them",
		Long: `Pull images onto this node, before a pod needs them. A pull waits for its turn among the pulls of pods, uses the
credentials of the node (not those of a pod), and ends at the first failure. Ctrl-C gives it up.

"berth images -w" shows the progress. An image that no pod uses is removed when the disk fills up, unless it is in
pinnedImages.`,
		Example:           `  berth pull docker.io/library/busybox:1.36 || true   # if the registry can be reached`,
		Args:              someImage,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			c := conn.client()
			defer c.Close()
			var errs []error
			for _, arg := range args {
				image, err := c.PullImage(cmd.Context(), arg)
				if err == nil {
					_, err = fmt.Fprintf(cmd.OutOrStdout(), "pulled %s: %s\n", arg, image.ID)
				}
				errs = append(errs, err)
			}
			return ended(cmd.Context(), errors.Join(errs...))
		},
	}
	conn.flag(cmd)
	return cmd
}

// someImage requires an image as the first argument.
func someImage(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return fmt.Errorf("which image? give IMAGE, as \"berth images\" lists them: %s", cmd.UseLine())
	}
	return nil
}

func newRmi() *cobra.Command {
	var conn connection
	cmd := &cobra.Command{
		Use:   "rmi IMAGE...",
		Short: "Remove images from this node",
		Long: `Remove images, with all of their names. IMAGE is a name as a pod has it, an ID, or the beginning of an ID. An image
that a container has, that a pod needs, or that is pinned stays, and the error says why. An image that an archive in
the images directory has is pinned until you delete that archive. "berth images prune" removes all that nothing uses.`,
		Example:           `  berth rmi registry.example/old:1 || true   # if it is there`,
		Args:              someImage,
		ValidArgsFunction: completeImages(&conn),
		RunE: func(cmd *cobra.Command, args []string) error {
			c := conn.client()
			defer c.Close()
			var errs []error
			for _, arg := range args {
				image, err := c.RemoveImage(cmd.Context(), arg)
				if err == nil {
					_, err = fmt.Fprintf(cmd.OutOrStdout(), "removed %s\n", cmp.Or(strings.Join(image.Tags, " "), image.ID))
				}
				errs = append(errs, err)
			}
			return ended(cmd.Context(), errors.Join(errs...))
		},
	}
	conn.flag(cmd)
	return cmd
}

// completeImages completes arguments with the names of the node's images.
func completeImages(conn *connection) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		c := conn.client()
		defer c.Close()
		images, err := c.Images(cmd.Context())
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		var names []string
		for i := range images.Items {
			names = append(names, images.Items[i].Tags...)
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}
