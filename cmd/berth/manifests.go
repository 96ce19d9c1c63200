package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/berthd/berth/client/api"
	"github.com/berthd/berth/client/show"
)

func newManifests() *cobra.Command {
	var conn connection
	var out output
	var noHeaders bool
	cmd := &cobra.Command{
		Use:   "manifests",
		Short: "List each manifest's verdict: accepted, or what is wrong with it and where",
		Long: `List the agent's verdict on each object of each file in its manifest directory: accepted, or each error
with its place.

A refused object changes nothing that runs. Its verdict is "refused, kept" if an earlier version stays in use, or
"kept" if the agent cannot read the file. Files that the agent does not read are "ignored".`,
		Example: `  berth manifests
  berth manifests -o wide                # since when, and the pods' UIDs`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c := conn.client()
			defer c.Close()
			list, err := c.Manifests(cmd.Context())
			if err != nil {
				return err
			}
			if out.structured() {
				return out.writeList(cmd.OutOrStdout(), list, noHeaders)
			}
			if out == "name" {
				return manifestNames(cmd.OutOrStdout(), list.Items)
			}
			noteNode(cmd.Context(), c, cmd)
			if len(list.Items)+len(list.Ignored) == 0 {
				fmt.Fprintln(cmd.ErrOrStderr(),
					"No manifests found: put a pod's YAML file into the manifest directory (staticPodPath of the "+
						"agent's config).")
				return nil
			}
			table := show.Manifests(list, out == "wide", time.Now())
			if noHeaders {
				table.Headings = nil
			}
			return table.Write(cmd.OutOrStdout())
		},
	}
	conn.flag(cmd)
	out.flag(cmd, "wide", "json", "yaml", "name")
	cmd.Flags().BoolVar(&noHeaders, "no-headers", false, "no headings")
	return cmd
}

// manifestNames writes the name of each object as kubectl does, KIND/NAME, each once.
func manifestNames(w io.Writer, list []api.Manifest) error {
	said := map[string]bool{}
	for i := range list {
		name := strings.ToLower(list[i].Kind) + "/" + list[i].Name
		if list[i].Name == "" || said[name] {
			continue
		}
		said[name] = true
		if _, err := fmt.Fprintln(w, name); err != nil {
			return err
		}
	}
	return nil
}
