package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/berthd/berth/agent/node"
	"github.com/berthd/berth/agent/server"
	"github.com/berthd/berth/agent/source"
	"github.com/berthd/berth/client/api"
	"github.com/berthd/berth/client/show"
	"github.com/berthd/berth/configs"
	"github.com/berthd/berth/internal/plural"
)

// validateOptions are the flags of validate.
type validateOptions struct {
	agent  agentFlags
	output output
	node   string
	strict bool
}

func newValidate() *cobra.Command {
	o := &validateOptions{}
	cmd := &cobra.Command{
		Use:   "validate FILE|DIR...",
		Short: "Check manifests as the agent would; no agent is needed",
		Long: `Check manifests as the agent would check them in its manifest directory; this needs no agent. All files are
one set: an object that is in two of them is an error, and so is a host port that two pods want. "-" is standard
input.

A pod that this machine can never run (more cpu or memory than pods can have, another operating system) gets a
warning. With --node, the size of this machine does not count. A field that does not exist gives a warning, and so does
a ConfigMap or Secret that a pod needs and that no file has. With --config, the node's name and the Pod Security
Standard are those of the config, and a pod that violates the standard is refused.

The exit code is 1 if an object is refused. With --strict it is also 1 if there is any warning.`,
		Example: `  berth validate pod.yaml
  berth validate /etc/kubernetes/manifests   # all that the agent would read
  berth validate --strict pod.yaml       # also what only gives a warning fails, for a pipeline
  berth validate - <pod.yaml             # what another program writes
  berth validate --config /etc/berth/config.yaml pod.yaml   # by the rules of this config, too`,
		Args: someManifest,
		RunE: o.run,
	}
	o.agent.addTo(cmd)
	for _, name := range []string{"socket", "root-dir", "container-runtime-endpoint"} {
		_ = cmd.Flags().MarkHidden(name)
	}
	o.output.flag(cmd, "json", "yaml")
	cmd.Flags().StringVar(&o.node, "node", "",
		"name of the node that the manifests are for (default the config's, or this host's name)")
	cmd.Flags().BoolVar(&o.strict, "strict", false, "a warning fails, too, such as one of an unknown field")
	return cmd
}

func (o *validateOptions) run(cmd *cobra.Command, paths []string) error {
	decoder, err := o.decoder()
	if err != nil {
		return err
	}
	list := api.ManifestList{Items: []api.Manifest{}}
	refused, warnings := 0, 0
	for _, v := range source.Validate(decoder, cmd.InOrStdin(), paths...) {
		warnings += len(v.Warnings)
		if !v.Accepted {
			refused++
		}
		list.Items = append(list.Items, server.ManifestOf(v))
	}
	if o.output != "" {
		err = o.output.write(cmd.OutOrStdout(), list)
	} else {
		show.Validated(cmd.OutOrStdout(), list.Items)
	}
	switch {
	case err != nil:
		return err
	case refused > 0:
		return &exitError{code: failed}
	case o.strict && warnings > 0:
		return fmt.Errorf("nothing is refused, but there is %s, and --strict allows none",
			plural.Of(warnings, "warning"))
	}
	return nil
}

// someManifest requires a manifest as the first argument.
func someManifest(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return fmt.Errorf("which manifests? give a FILE, a DIR or - for standard input: %s", cmd.UseLine())
	}
	return nil
}

// decoder returns a decoder for the node with the given name, or for this host. What pods can
// request on this host is computed as its agent does. A config that the flags name also has the
// rules, and the name if none is given.
func (o *validateOptions) decoder() (source.Decoder, error) {
	d := source.Decoder{NodeName: o.node}
	named := o.agent.given("config", "config-dir")
	cfg, _, err := o.agent.load()
	switch {
	case err != nil && named:
		return d, err
	case err == nil && o.node == "":
		if d.Allocatable, err = node.AllocatableOf(cfg); err != nil {
			return d, err
		}
	}
	if !named {
		d.NodeName, err = nodeName(o.node)
		return d, err
	}
	d.PodSecurity = string(cfg.Berth.PodSecurity)
	if o.node == "" {
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
