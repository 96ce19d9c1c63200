package main

import (
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/berthd/berth/agent/server"
	"github.com/berthd/berth/agent/source"
	"github.com/berthd/berth/client/api"
	"github.com/berthd/berth/client/show"
)

func newManifests() *cobra.Command {
	var conn connection
	var out output
	cmd := &cobra.Command{
		Use:   "manifests",
		Short: "List each manifest's verdict: accepted, or what is wrong with it and where",
		Example: `  berth manifests
  berth manifests -o wide`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c := conn.client()
			defer c.Close()
			list, err := c.Manifests(cmd.Context())
			if err != nil {
				return err
			}
			if out == "json" || out == "yaml" {
				return out.write(cmd.OutOrStdout(), api.ManifestList{Items: list})
			}
			if len(list) == 0 {
				fmt.Fprintln(cmd.OutOrStdout(), "No manifests found: put a pod's YAML file into the manifest directory (staticPodPath of the agent's config).")
				return nil
			}
			return show.Manifests(list, out == "wide", time.Now()).Write(cmd.OutOrStdout())
		},
	}
	conn.flag(cmd)
	out.flag(cmd, "wide", "json", "yaml")
	return cmd
}

func newValidate() *cobra.Command {
	var out output
	var node string
	var conn connection
	cmd := &cobra.Command{
		Use:   "validate FILE|DIR...",
		Short: "Check manifests as the agent would; no agent is needed",
		Long: `Check manifests as the agent would; no agent is needed. All files together are taken as one set: an object that is in two of them is an error.

The exit code is 1 if any of them is refused.`,
		Example: `  berth validate pod.yaml
  berth validate /etc/kubernetes/manifests`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			name, err := nodeName(node)
			if err != nil {
				return err
			}
			list, refused := api.ManifestList{Items: []api.Manifest{}}, 0
			for _, v := range source.Validate(name, args...) {
				if !v.Accepted {
					refused++
				}
				list.Items = append(list.Items, server.ManifestOf(v))
			}
			if out != "" {
				err = out.write(cmd.OutOrStdout(), list)
			} else {
				show.Verdicts(cmd.OutOrStdout(), list.Items)
			}
			if err == nil && refused > 0 {
				err = &exitError{code: 1}
			}
			return err
		},
	}
	conn.flag(cmd)
	_ = cmd.Flags().MarkHidden("socket")
	out.flag(cmd, "json", "yaml")
	cmd.Flags().StringVar(&node, "node", "", "name of the node that the manifests are for (default this host's name)")
	return cmd
}

// nodeName is the given name, else the host's.
func nodeName(given string) (string, error) {
	if given != "" {
		return given, nil
	}
	host, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("asking for the host's name: %w: give --node", err)
	}
	return strings.ToLower(strings.TrimSpace(host)), nil
}
