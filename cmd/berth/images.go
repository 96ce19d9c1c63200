package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/berthd/berth/client"
	"github.com/berthd/berth/client/api"
	"github.com/berthd/berth/client/show"
)

// pullsEvery is how often a watch requests the progress of pulls.
const pullsEvery = time.Second

func newImages() *cobra.Command {
	var conn connection
	var out output
	var watch bool
	cmd := &cobra.Command{
		Use:   "images",
		Short: "List this node's images, and the pulls under way",
		Long: `List the images of this node and, above the images, the pulls. Queued shows what a pull waits for, and
Pulling how much of the image has come. BackOff shows why a pull failed and when the agent tries it again.
LAST USED is now for an image that a container has or that a pod needs.

Archives in the images directory (imagesDir) that are not imported are shown, too: Waiting while the file is being
written, Failed with the error. "-o wide" shows all archives.`,
		Example: `  berth images
  berth images -w                # also the progress of the pulls
  berth images prune --dry-run   # what nobody uses
  berth images -o name           # for scripts
  berth images -o json | jq '.pulls[] | {image, state, done, total}'`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, w, c := cmd.Context(), cmd.OutOrStdout(), conn.client()
			defer c.Close()
			images, err := c.Images(ctx)
			if err != nil {
				return err
			}
			if out.structured() {
				return out.write(w, images)
			}
			if out == "name" {
				return imageNames(w, images.Items)
			}
			if err := show.Images(w, images, out == "wide", time.Now()); err != nil || !watch {
				return err
			}
			return ended(ctx, followPulls(ctx, c, w, images.Pulls))
		},
	}
	conn.flag(cmd)
	out.flag(cmd, "wide", "json", "yaml", "name")
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "also show the progress of the pulls")
	cmd.AddCommand(newPruneImages())
	return cmd
}

// imageNames writes a name of each image: its first tag, or else a digest, or its ID.
func imageNames(w io.Writer, images []api.Image) error {
	for i := range images {
		name := images[i].ID
		for _, list := range [][]string{images[i].Digests, images[i].Tags} {
			if len(list) > 0 {
				name = list[0]
			}
		}
		if _, err := fmt.Fprintln(w, name); err != nil {
			return err
		}
	}
	return nil
}

func newPruneImages() *cobra.Command {
	var conn connection
	var out output
	var dryRun bool
	cmd := &cobra.Command{
		Use:   "prune",
		Short: "Remove the images that nothing uses",
		Long: `Remove the images that no container has and no pod needs, however full the disk is. Pinned images stay,
among them those of the archives in the images directory and the sandbox image, and images that came a moment ago
(imageMinimumGCAge).`,
		Example: `  berth images prune --dry-run
  berth images prune`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c := conn.client()
			defer c.Close()
			pruned, err := c.PruneImages(cmd.Context(), dryRun)
			if err != nil {
				return err
			}
			if out.structured() {
				err = out.write(cmd.OutOrStdout(), pruned)
			} else {
				err = show.Pruned(cmd.OutOrStdout(), pruned.Items, dryRun)
			}
			if err == nil && pruned.Error != "" {
				err = errors.New(pruned.Error)
			}
			return err
		},
	}
	conn.flag(cmd)
	out.flag(cmd, "json", "yaml")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "only say which images would be removed")
	return cmd
}

// followPulls writes a row for each pull that makes progress, until the context ends. A pull that
// is no longer listed has ended.
func followPulls(ctx context.Context, c *client.Client, w io.Writer, shown []api.Pull) error {
	fmt.Fprintln(w)
	table := show.Pulls(shown, time.Now())
	widths := table.Widths()
	fmt.Fprintln(w, widths.Line(table.Headings))
	known := map[string]string{}
	for {
		images, err := c.Images(ctx)
		if err != nil {
			return err
		}
		now := time.Now()
		left := map[string]bool{}
		for i, p := range images.Pulls {
			left[p.Image] = true
			if state := p.State + show.Progress(p); known[p.Image] != state {
				known[p.Image] = state
				fmt.Fprintln(w, widths.Line(show.Pulls(images.Pulls[i:i+1], now).Rows[0]))
			}
		}
		for image := range known {
			if !left[image] {
				delete(known, image)
				fmt.Fprintln(w, widths.Line([]string{image, "Ended", "-", "-", "-", "-", ""}))
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pullsEvery):
		}
	}
}
