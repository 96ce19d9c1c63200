package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
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
	conn                         connection
	output                       output
	pods                         podFlags
	watch, noHeaders, showLabels bool
	sort                         string

	choice *choice
	// note writes what people must know to read the list.
	note func()
}

func newPs() *cobra.Command {
	o := &psOptions{}
	cmd := &cobra.Command{
		Use:     "ps [POD...]",
		Aliases: []string{"get"},
		Short:   "List this node's pods",
		Long:    `List this node's pods, all of them or those that are named, as "kubectl get pods" does.`,
		Example: `  berth ps
  berth ps -n kube-system -o wide
  berth ps -l app=web --show-labels
  berth ps -w                            # then a line for each change
  berth ps web -o yaml                   # all of one pod
  berth ps -o name                       # for scripts
  berth ps web -o jsonpath={.status.podIP}
  berth ps --sort-by .status.startTime -o custom-columns=POD:.metadata.name,IMAGE:.spec.containers[*].image`,
		ValidArgsFunction: completePods(&o.conn, math.MaxInt),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			ctx, c := cmd.Context(), o.conn.client()
			defer c.Close()
			args = withoutKind(ctx, c, args, o.pods.namespace)
			if o.choice, err = o.pods.choose(ctx, c, args); err != nil {
				return err
			}
			o.note = func() {}
			if !o.output.structured() {
				o.note = askNode(ctx, c, cmd)
			}
			return ended(ctx, o.run(ctx, c, cmd.OutOrStdout(), cmd.ErrOrStderr()))
		},
	}
	o.conn.flag(cmd)
	o.output.flag(cmd, "wide", "json", "yaml", "name")
	o.pods.flags(cmd)
	cmd.Flags().BoolVarP(&o.watch, "watch", "w", false, "after the list, print a line for each change, until Ctrl-C")
	cmd.Flags().BoolVar(&o.noHeaders, "no-headers", false, "no headings")
	cmd.Flags().StringVar(&o.sort, "sort-by", "",
		"in the order of this field, such as .metadata.creationTimestamp or .status.podIP")
	cmd.MarkFlagsMutuallyExclusive("sort-by", "watch")
	cmd.Flags().BoolVar(&o.showLabels, "show-labels", false, "the pods' labels, too")
	return cmd
}

// wants reports whether a pod is to be listed.
func (o *psOptions) wants(p *api.PodSummary) bool { return o.choice.has(p.Namespace, p.Name, p.Labels) }

func (o *psOptions) run(ctx context.Context, c *client.Client, w, errOut io.Writer) error {
	if o.watch && o.output != "" && o.output != "wide" {
		o.note()
		return o.stream(ctx, c, w)
	}
	if o.output.structured() {
		return o.objects(ctx, c, w)
	}
	all, err := o.summaries(ctx, c)
	o.note()
	if err != nil {
		return err
	}
	var pods []api.PodSummary
	for _, p := range all {
		if o.wants(&p) {
			pods = append(pods, p)
		}
	}
	if o.output == "name" {
		for _, p := range pods {
			fmt.Fprintf(w, "pod/%s\n", p.Name)
		}
		return nil
	}
	columns := show.PodColumns{Namespace: o.pods.namespace == "", Wide: o.output == "wide", Labels: o.showLabels}
	table := show.Pods(pods, columns, time.Now())
	if o.noHeaders {
		table.Headings = nil
	}
	switch {
	case len(all) == 0 && !o.watch:
		fmt.Fprintln(errOut,
			"No pods on this node. See \"berth manifests\" for what was found in the manifest directory.")
		return nil
	case len(pods) == 0 && !o.watch:
		fmt.Fprintln(errOut, "No pods found.")
		return nil
	}
	if err := table.Write(w); err != nil || !o.watch {
		return err
	}
	return o.follow(ctx, c, w, columns, table.Widths(), pods)
}

// summaries requests the summaries of the pods, in the wanted order.
func (o *psOptions) summaries(ctx context.Context, c *client.Client) ([]api.PodSummary, error) {
	all, err := c.Summaries(ctx)
	if err != nil || o.sort == "" {
		return all, err
	}
	pods, err := c.Pods(ctx)
	if err != nil {
		return nil, err
	}
	if err := sortBy(pods, o.sort); err != nil {
		return nil, err
	}
	place := map[types.UID]int{}
	for i := range pods {
		place[pods[i].UID] = i - len(pods) // a pod that was added since then comes after all others
	}
	slices.SortStableFunc(all, func(a, b api.PodSummary) int { return place[a.UID] - place[b.UID] })
	return all, nil
}

// follow writes a row for each change after the given rows.
func (o *psOptions) follow(
	ctx context.Context, c *client.Client, w io.Writer, columns show.PodColumns, widths show.Widths,
	shown []api.PodSummary,
) error {
	known := map[types.UID]string{}
	for _, p := range shown {
		known[p.UID] = fingerprint(p)
	}
	return c.WatchPods(ctx, func(change api.Change) error {
		p := change.Pod
		if !o.wants(&p) || change.Type != api.Deleted && known[p.UID] == fingerprint(p) {
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

// fingerprint is the part of a pod whose change makes a new row.
func fingerprint(p api.PodSummary) string {
	return fmt.Sprint(p.Ready, p.Containers, p.Status, p.Restarts, p.IPs, p.ReadinessGatesTrue)
}

// stream writes each pod that changes, as it is then: a line of JSON, a document of YAML, or a
// name. The schema is that of a pod without -w. A pod that is gone is written as it was last seen,
// with a deletionTimestamp.
func (o *psOptions) stream(ctx context.Context, c *client.Client, w io.Writer) error {
	seen := map[types.UID]*v1.Pod{}
	return c.WatchPods(ctx, func(change api.Change) error {
		if !o.wants(&change.Pod) {
			return nil
		}
		if o.output == "name" {
			_, err := fmt.Fprintf(w, "pod/%s\n", change.Pod.Name)
			return err
		}
		uid := change.Pod.UID
		// the first answer has all pods of the watch's beginning
		if pod := seen[uid]; pod == nil || change.Type == api.Modified {
			all, err := c.Pods(ctx)
			if err != nil {
				return err
			}
			for i := range all {
				seen[all[i].UID] = &all[i]
			}
		}
		pod := seen[uid]
		if pod == nil {
			return nil // it came and went
		}
		if change.Type == api.Deleted {
			delete(seen, uid)
			if pod.DeletionTimestamp == nil {
				pod.DeletionTimestamp = &metav1.Time{Time: time.Now()} // it ended between two looks
			}
		}
		return o.writeOne(w, pod)
	})
}

// writeOne writes one of many pods.
func (o *psOptions) writeOne(w io.Writer, pod *v1.Pod) error {
	pod.TypeMeta = metav1.TypeMeta{Kind: "Pod", APIVersion: "v1"}
	if o.output == "json" {
		return json.NewEncoder(w).Encode(pod)
	}
	if _, err := fmt.Fprintln(w, "---"); err != nil {
		return err
	}
	return show.YAML(w, pod)
}

// objects writes the pods as API objects: a single named pod by itself, and otherwise a List.
func (o *psOptions) objects(ctx context.Context, c *client.Client, w io.Writer) error {
	all, err := c.Pods(ctx)
	if err == nil && o.sort != "" {
		err = sortBy(all, o.sort)
	}
	if err != nil {
		return err
	}
	list := v1.PodList{TypeMeta: metav1.TypeMeta{Kind: "PodList", APIVersion: "v1"}, Items: []v1.Pod{}}
	for _, pod := range o.choice.pods(all) {
		pod.TypeMeta = metav1.TypeMeta{Kind: "Pod", APIVersion: "v1"}
		if len(o.choice.named) == 1 {
			return o.output.writeList(w, pod, o.noHeaders)
		}
		list.Items = append(list.Items, pod)
	}
	return o.output.writeList(w, list, o.noHeaders)
}
