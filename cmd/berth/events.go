package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berthd/berth/client"
	"github.com/berthd/berth/client/show"
)

// eventsOptions are the flags of events.
type eventsOptions struct {
	conn           connection
	output         output
	namespace, pod string
	watch, all     bool
}

func newEvents() *cobra.Command {
	o := &eventsOptions{}
	cmd := &cobra.Command{
		Use:   "events",
		Short: "List what happened on this node lately",
		Example: `  berth events
  berth events --for web -w`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, c := cmd.Context(), o.conn.client()
			defer c.Close()
			return ended(ctx, o.run(ctx, c, cmd.OutOrStdout()))
		},
	}
	o.conn.flag(cmd)
	o.output.flag(cmd, "wide", "json", "yaml")
	cmd.Flags().StringVarP(&o.namespace, "namespace", "n", "", "only events of this namespace")
	cmd.Flags().BoolVarP(&o.all, "all-namespaces", "A", false, "events of all namespaces (the default)")
	cmd.Flags().StringVar(&o.pod, "for", "", "only events about this `POD`")
	cmd.Flags().BoolVarP(&o.watch, "watch", "w", false, "go on with those that follow")
	_ = cmd.RegisterFlagCompletionFunc("for", completePods(&o.conn))
	return cmd
}

func (o *eventsOptions) run(ctx context.Context, c *client.Client, w io.Writer) error {
	wants, err := o.filter(ctx, c)
	if err != nil {
		return err
	}
	columns := show.EventColumns{Namespace: o.namespace == "", Wide: o.output == "wide"}
	if o.watch {
		return o.follow(ctx, c, w, columns, wants)
	}
	all, err := c.Events(ctx)
	if err != nil {
		return err
	}
	list := v1.EventList{TypeMeta: metav1.TypeMeta{Kind: "EventList", APIVersion: "v1"}, Items: []v1.Event{}}
	for i := range all {
		if wants(&all[i]) {
			list.Items = append(list.Items, all[i])
		}
	}
	if o.output == "json" || o.output == "yaml" {
		return o.output.write(w, list)
	}
	if len(list.Items) == 0 {
		fmt.Fprintln(w, "No events.")
		return nil
	}
	return show.Events(list.Items, columns, time.Now()).Write(w)
}

// filter says which events are wanted. A pod that is gone may still be named in full: its events are kept.
func (o *eventsOptions) filter(ctx context.Context, c *client.Client) (func(*v1.Event) bool, error) {
	namespace, name := o.namespace, ""
	if o.pod != "" {
		pod, err := findPod(ctx, c, o.pod, o.namespace)
		var unknown *unknownPodError
		switch {
		case err == nil:
			namespace, name = pod.Namespace, pod.Name
		case errors.As(err, &unknown):
			name = o.pod
			if ns, rest, ok := strings.Cut(o.pod, "/"); ok {
				namespace, name = ns, rest
			}
		default:
			return nil, err
		}
	}
	return func(e *v1.Event) bool {
		if namespace != "" && e.Namespace != namespace {
			return false
		}
		return name == "" || e.InvolvedObject.Kind == "Pod" && e.InvolvedObject.Name == name
	}, nil
}

func (o *eventsOptions) follow(ctx context.Context, c *client.Client, w io.Writer, columns show.EventColumns, wants func(*v1.Event) bool) error {
	widths := (&show.Table{Headings: columns.Headings()}).Widths()
	if o.output == "" || o.output == "wide" {
		fmt.Fprintln(w, widths.Line(columns.Headings()))
	}
	return c.WatchEvents(ctx, func(e v1.Event) error {
		if !wants(&e) {
			return nil
		}
		switch o.output {
		case "json":
			return json.NewEncoder(w).Encode(e)
		case "yaml":
			fmt.Fprintln(w, "---")
			return show.YAML(w, e)
		}
		_, err := fmt.Fprintln(w, widths.Line(columns.Row(&e, time.Now())))
		return err
	})
}
