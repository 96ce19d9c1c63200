package main

import (
	"context"
	"fmt"
	"io"
	"math"
	"os"
	"runtime"

	"github.com/spf13/cobra"
	"golang.org/x/term"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/berthd/berth/client"
	"github.com/berthd/berth/client/api"
	"github.com/berthd/berth/client/show"
)

// topOptions are the flags of top.
type topOptions struct {
	conn      connection
	output    output
	pods      podFlags
	columns   show.TopColumns
	noHeaders bool
}

func newTop() *cobra.Command {
	cmd := newTopPods("top [POD...]")
	cmd.Short = "Show what this node's pods use of cpu and memory"
	cmd.Long = `Show what this node's pods use of cpu and memory, as "kubectl top" does. The figures are those of
the pods' cgroups at this moment. Memory is the working set, which the kernel cannot take back at once.`
	cmd.Example = `  berth top
  berth top web --containers
  berth top --sort-by memory --sum
  berth top node`
	pods := newTopPods("pod [POD...]")
	pods.Aliases, pods.Short = []string{"pods", "po"}, "Show what pods use, as top does by itself"
	cmd.AddCommand(pods, newTopNode())
	return cmd
}

func newTopPods(use string) *cobra.Command {
	o := &topOptions{}
	cmd := &cobra.Command{
		Use: use, Args: cobra.ArbitraryArgs,
		ValidArgsFunction: completePods(&o.conn, math.MaxInt),
		RunE: func(cmd *cobra.Command, args []string) error {
			c := o.conn.client()
			defer c.Close()
			return o.run(cmd.Context(), c, args, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	o.conn.flag(cmd)
	o.output.flag(cmd, "json", "yaml", "name")
	o.pods.flags(cmd)
	f := cmd.Flags()
	f.BoolVar(&o.columns.Containers, "containers", false, "each container by itself")
	f.BoolVar(&o.columns.Sum, "sum", false, "and all together")
	f.StringVar(&o.columns.Sort, "sort-by", "", "the most first: cpu or memory")
	f.BoolVar(&o.noHeaders, "no-headers", false, "no headings")
	_ = cmd.RegisterFlagCompletionFunc("sort-by",
		cobra.FixedCompletions([]string{"cpu", "memory"}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func (o *topOptions) run(ctx context.Context, c *client.Client, args []string, w, errOut io.Writer) error {
	if s := o.columns.Sort; s != "" && s != "cpu" && s != "memory" {
		return wrongly("--sort-by %s: must be cpu or memory", s)
	}
	choice, err := o.pods.choose(ctx, c, args)
	if err != nil {
		return err
	}
	all, err := c.Pods(ctx)
	if err != nil {
		return err
	}
	wanted := map[string]bool{}
	for _, p := range choice.pods(all) {
		wanted[string(p.UID)] = true
	}
	summary, err := c.Stats(ctx)
	if err != nil {
		return err
	}
	pods := []statsapi.PodStats{}
	for _, p := range summary.Pods {
		if wanted[p.PodRef.UID] {
			pods = append(pods, p)
		}
	}
	if o.output.structured() {
		return o.output.writeList(w, podUse{Items: pods}, o.noHeaders)
	}
	if len(pods) == 0 {
		fmt.Fprintln(errOut, "No pods found that use anything.")
		return nil
	}
	if o.output == "name" {
		for i := range pods {
			fmt.Fprintf(w, "pod/%s\n", pods[i].PodRef.Name)
		}
		return nil
	}
	o.columns.Namespace = o.pods.namespace == ""
	table := show.Top(pods, o.columns)
	if o.noHeaders {
		table.Headings = nil
	}
	return table.Write(w)
}

// podUse is what the pods use, as a list in JSON or YAML.
type podUse struct {
	Items []statsapi.PodStats `json:"items"`
}

// nodeUse is what the node uses, and what it has, in JSON or YAML.
type nodeUse struct {
	*statsapi.NodeStats

	Resources *api.Resources `json:"resources,omitempty"`
}

// writeResources writes what the node has of each resource, with bars on a terminal.
func writeResources(w io.Writer, r *api.Resources, node *statsapi.NodeStats) error {
	file, ok := w.(*os.File)
	fmt.Fprintln(w)
	err := show.NodeResources(r, node, ok && term.IsTerminal(int(file.Fd()))).Write(w)
	if r.ReservedCPUs != "" {
		fmt.Fprintf(w, "\nKept for the system: CPUs %s (reservedSystemCPUs).\n", r.ReservedCPUs)
	}
	return err
}

func newTopNode() *cobra.Command {
	var conn connection
	var out output
	var noHeaders bool
	cmd := &cobra.Command{
		Use: "node", Aliases: []string{"nodes", "no"}, Short: "Show what the node has, and what is requested and used of it",
		Long: `Show what the node uses of cpu and memory, as "kubectl top node" does, and below it for each resource of the
node its capacity, what of it pods can request (allocatable), what they request, and what is used. --no-headers shows
the first line alone.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c := conn.client()
			defer c.Close()
			summary, err := c.Stats(cmd.Context())
			if err != nil {
				return err
			}
			st, err := c.Status(cmd.Context())
			if err != nil {
				return err
			}
			if out != "" {
				return out.write(cmd.OutOrStdout(), nodeUse{&summary.Node, st.Resources})
			}
			table := show.TopNode(&summary.Node, runtime.NumCPU())
			if noHeaders {
				table.Headings = nil
			}
			if err := table.Write(cmd.OutOrStdout()); err != nil || noHeaders || st.Resources == nil {
				return err
			}
			return writeResources(cmd.OutOrStdout(), st.Resources, &summary.Node)
		},
	}
	conn.flag(cmd)
	out.flag(cmd, "json", "yaml")
	cmd.Flags().BoolVar(&noHeaders, "no-headers", false, "no headings")
	return cmd
}
