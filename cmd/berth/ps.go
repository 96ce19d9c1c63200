package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berthd/berth/client"
	"github.com/berthd/berth/client/api"
	"github.com/berthd/berth/client/show"
)

// psOptions are the flags of ps.
type psOptions struct {
	conn                  connection
	output                output
	namespace             string
	watch, all, noHeaders bool
}

func newPs() *cobra.Command {
	o := &psOptions{}
	cmd := &cobra.Command{
		Use:     "ps [POD]",
		Aliases: []string{"get"},
		Short:   "List this node's pods",
		Long:    "List this node's pods as kubectl get pods does.",
		Example: `  berth ps
  berth ps -n kube-system -o wide
  berth ps -w                    # go on with what changes
  berth ps -o json | jq -r '.items[].metadata.name'`,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: completePods(&o.conn),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, c := cmd.Context(), o.conn.client()
			defer c.Close()
			var only *v1.Pod
			if len(args) == 1 {
				pod, err := findPod(ctx, c, args[0], o.namespace)
				if err != nil {
					return err
				}
				only = pod
			}
			return ended(ctx, o.run(ctx, c, cmd.OutOrStdout(), only))
		},
	}
	o.conn.flag(cmd)
	o.output.flag(cmd, "wide", "json", "yaml", "name")
	cmd.Flags().StringVarP(&o.namespace, "namespace", "n", "", "only pods of this namespace")
	cmd.Flags().BoolVarP(&o.all, "all-namespaces", "A", false, "pods of all namespaces (the default)")
	cmd.Flags().BoolVarP(&o.watch, "watch", "w", false, "go on with what changes")
	cmd.Flags().BoolVar(&o.noHeaders, "no-headers", false, "no headings")
	cmd.MarkFlagsMutuallyExclusive("namespace", "all-namespaces")
	return cmd
}

// wants reports whether a pod is to be listed.
func (o *psOptions) wants(only *v1.Pod, namespace, name string) bool {
	if only != nil {
		return namespace == only.Namespace && name == only.Name
	}
	return o.namespace == "" || o.namespace == namespace
}

func (o *psOptions) run(ctx context.Context, c *client.Client, w io.Writer, only *v1.Pod) error {
	if o.watch && o.output != "" && o.output != "wide" {
		return o.stream(ctx, c, w, only)
	}
	if o.output == "json" || o.output == "yaml" {
		return o.objects(ctx, c, w, only)
	}
	all, err := c.Summaries(ctx)
	if err != nil {
		return err
	}
	var pods []api.PodSummary
	for _, p := range all {
		if o.wants(only, p.Namespace, p.Name) {
			pods = append(pods, p)
		}
	}
	if o.output == "name" {
		for _, p := range pods {
			fmt.Fprintf(w, "pod/%s\n", p.Name)
		}
		return nil
	}
	columns := show.PodColumns{Namespace: o.namespace == "", Wide: o.output == "wide"}
	table := show.Pods(pods, columns, time.Now())
	if o.noHeaders {
		table.Headings = nil
	}
	if len(pods) == 0 && !o.watch {
		fmt.Fprintln(w, "No pods on this node. See \"berth manifests\" for what was found in the manifest directory.")
		return nil
	}
	if err := table.Write(w); err != nil || !o.watch {
		return err
	}
	return o.follow(ctx, c, w, columns, table.Widths(), pods, only)
}

// follow writes a row for each change after those already shown.
func (o *psOptions) follow(ctx context.Context, c *client.Client, w io.Writer, columns show.PodColumns, widths show.Widths, shown []api.PodSummary, only *v1.Pod) error {
	known := map[types.UID]string{}
	for _, p := range shown {
		known[p.UID] = fingerprint(p)
	}
	return c.WatchPods(ctx, func(change api.Change) error {
		p := change.Pod
		if !o.wants(only, p.Namespace, p.Name) || change.Type != api.Deleted && known[p.UID] == fingerprint(p) {
			return nil
		}
		known[p.UID] = fingerprint(p)
		if change.Type == api.Deleted {
			p.Status = "Deleted"
		}
		_, err := fmt.Fprintln(w, widths.Line(columns.Row(p, time.Now())))
		return err
	})
}

// fingerprint is what of a pod makes a new row.
func fingerprint(p api.PodSummary) string {
	return fmt.Sprint(p.Ready, p.Containers, p.Status, p.Restarts, p.IPs)
}

// stream writes changes as they come, in JSON, YAML or names.
func (o *psOptions) stream(ctx context.Context, c *client.Client, w io.Writer, only *v1.Pod) error {
	return c.WatchPods(ctx, func(change api.Change) error {
		if !o.wants(only, change.Pod.Namespace, change.Pod.Name) {
			return nil
		}
		switch o.output {
		case "json":
			return json.NewEncoder(w).Encode(change)
		case "yaml":
			fmt.Fprintln(w, "---")
			return show.YAML(w, change)
		}
		_, err := fmt.Fprintf(w, "pod/%s\n", change.Pod.Name)
		return err
	})
}

// objects writes the pods as the API has them: one as itself, several as a List.
func (o *psOptions) objects(ctx context.Context, c *client.Client, w io.Writer, only *v1.Pod) error {
	pods, err := c.Pods(ctx)
	if err != nil {
		return err
	}
	list := v1.PodList{TypeMeta: metav1.TypeMeta{Kind: "PodList", APIVersion: "v1"}, Items: []v1.Pod{}}
	for i := range pods {
		pods[i].TypeMeta = metav1.TypeMeta{Kind: "Pod", APIVersion: "v1"}
		if only != nil && pods[i].UID == only.UID {
			return o.write(w, pods[i])
		}
		if o.wants(only, pods[i].Namespace, pods[i].Name) {
			list.Items = append(list.Items, pods[i])
		}
	}
	return o.write(w, list)
}

func (o *psOptions) write(w io.Writer, value any) error { return o.output.write(w, value) }

// write writes a value as JSON or YAML.
func (o output) write(w io.Writer, value any) error {
	if o == "yaml" {
		return show.YAML(w, value)
	}
	return show.JSON(w, value)
}
