package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/berthd/berth/agent/node"
	"github.com/berthd/berth/agent/server"
	"github.com/berthd/berth/agent/source"
	"github.com/berthd/berth/client/api"
	"github.com/berthd/berth/client/show"
	"github.com/berthd/berth/configs"
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

func newValidate() *cobra.Command {
	var out output
	var forNode string
	var conn connection
	var flags agentFlags
	cmd := &cobra.Command{
		Use:   "validate FILE|DIR...",
		Short: "Check manifests as the agent would; no agent is needed",
		Long: `Check manifests as the agent would check them in its manifest directory; this needs no agent. All files are
one set: an object that is in two of them is an error, and so is a host port that two pods want. "-" is standard
input.

A pod that this machine can never run (more cpu or memory than it has, another operating system) gets a warning.
With --node, the size of this machine does not count. A ConfigMap or Secret that a pod needs and that no file has gives
a warning, too. With --config, the node's name and the Pod Security Standard are those of the config, and a pod that
violates the standard is refused.

The exit code is 1 if an object is refused.`,
		Example: `  berth validate pod.yaml
  berth validate /etc/kubernetes/manifests   # all that the agent would read
  berth validate - <pod.yaml             # what another program writes
  berth validate --config /etc/berth/config.yaml pod.yaml   # by the rules of this config, too`,
		Args: someManifest,
		RunE: func(cmd *cobra.Command, args []string) error {
			decoder, err := decoderFor(forNode, &flags)
			if err != nil {
				return err
			}
			list, refused := api.ManifestList{Items: []api.Manifest{}}, 0
			for _, v := range source.Validate(decoder, cmd.InOrStdin(), args...) {
				if !v.Accepted {
					refused++
				}
				list.Items = append(list.Items, server.ManifestOf(v))
			}
			if out != "" {
				err = out.write(cmd.OutOrStdout(), list)
			} else {
				show.Validated(cmd.OutOrStdout(), list.Items)
			}
			if err == nil && refused > 0 {
				err = &exitError{code: 1}
			}
			return err
		},
	}
	conn.flag(cmd)
	_ = cmd.Flags().MarkHidden("socket")
	flags.addTo(cmd)
	for _, name := range []string{"root-dir", "container-runtime-endpoint"} {
		_ = cmd.Flags().MarkHidden(name)
	}
	out.flag(cmd, "json", "yaml")
	cmd.Flags().StringVar(&forNode, "node", "",
		"name of the node that the manifests are for (default the config's, or this host's name)")
	return cmd
}

// someManifest requires a manifest as the first argument.
func someManifest(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return fmt.Errorf("which manifests? give a FILE, a DIR or - for standard input: %s", cmd.UseLine())
	}
	return nil
}

// decoderFor returns a decoder for the node with the given name, or for this host. A config that
// the flags name has the rules, and the name if none is given.
func decoderFor(given string, flags *agentFlags) (source.Decoder, error) {
	d := source.Decoder{NodeName: given}
	if given == "" {
		machine, err := node.Machine()
		if err != nil {
			return d, err
		}
		d.Capacity = machine
	}
	if !flags.given("config", "config-dir") {
		name, err := nodeName(given)
		d.NodeName = name
		return d, err
	}
	cfg, _, err := flags.load()
	if err != nil {
		return d, err
	}
	d.PodSecurity = string(cfg.Berth.PodSecurity)
	if given == "" {
		d.NodeName, err = configs.NodeName(cfg)
	}
	return d, err
}

// nodeName returns the given name, or the host's.
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
