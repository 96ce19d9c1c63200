package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
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
	since          string
	types          []string
	watch, all     bool
	sort           string
	noHeaders      bool
}

func newEvents() *cobra.Command {
	o := &eventsOptions{}
	cmd := &cobra.Command{
		Use:   "events",
		Short: "List what happened on this node lately",
		Long: `List what happened on this node lately, the latest at the end. The agent has some hundreds of events in memory.
With --since it also reads those that it has kept on the disk, from before its start; history.maxSize and
history.maxAge in its config limit them.`,
		Example: `  berth events
  berth events --for web
  berth events --since yesterday         # or 2h, 3d, 2026-01-31, 2026-01-31T15:04:05Z
  berth events --types Warning -w        # also the events that follow`,
		Args: func(cmd *cobra.Command, args []string) error {
			if err := noArgs(cmd, args); err != nil {
				return fmt.Errorf("%w: the events of a pod are berth events --for POD", err)
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, c := cmd.Context(), o.conn.client()
			defer c.Close()
			return ended(ctx, o.run(ctx, c, cmd.OutOrStdout(), cmd.ErrOrStderr()))
		},
	}
	o.conn.flag(cmd)
	o.output.flag(cmd, "wide", "json", "yaml", "name")
	cmd.Flags().StringVarP(&o.namespace, "namespace", "n", "", "only events of this namespace")
	cmd.Flags().BoolVarP(&o.all, "all-namespaces", "A", false, "events of all namespaces (the default)")
	cmd.Flags().StringVar(&o.pod, "for", "", "only events about this `POD`")
	cmd.Flags().BoolVarP(&o.watch, "watch", "w", false, "also list the events that follow")
	cmd.Flags().StringVar(&o.since, "since", "", sinceUsage)
	cmd.MarkFlagsMutuallyExclusive("since", "watch")
	_ = cmd.RegisterFlagCompletionFunc("since",
		cobra.FixedCompletions([]string{"today", "yesterday", "1h", "24h"}, cobra.ShellCompDirectiveNoFileComp))
	cmd.Flags().StringSliceVar(&o.types, "types", nil, "only events of these `TYPES`: Normal, Warning")
	cmd.Flags().StringVar(&o.sort, "sort-by", "", "in the order of this field, such as .firstTimestamp or .count")
	cmd.MarkFlagsMutuallyExclusive("sort-by", "watch")
	cmd.Flags().BoolVar(&o.noHeaders, "no-headers", false, "no headings")
	cmd.MarkFlagsMutuallyExclusive("namespace", "all-namespaces")
	_ = cmd.RegisterFlagCompletionFunc("for", completePods(&o.conn, 1))
	_ = cmd.RegisterFlagCompletionFunc("namespace", completeNamespaces)
	_ = cmd.RegisterFlagCompletionFunc("types",
		cobra.FixedCompletions([]string{v1.EventTypeNormal, v1.EventTypeWarning}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func (o *eventsOptions) run(ctx context.Context, c *client.Client, w, errOut io.Writer) error {
	wants, gone, err := o.filter(ctx, c)
	if err != nil {
		return err
	}
	columns := show.EventColumns{Namespace: o.namespace == "", Wide: o.output == "wide"}
	if o.watch {
		if gone != nil {
			fmt.Fprintf(errOut, "%v. Waiting for events of one of that name.\n", gone)
		}
		return o.follow(ctx, c, w, columns, wants)
	}
	var since time.Time
	if o.since != "" {
		if since, err = parseSince(o.since, time.Now()); err != nil {
			return err
		}
	}
	all, err := c.Events(ctx, since)
	if err != nil {
		return err
	}
	list := v1.EventList{TypeMeta: metav1.TypeMeta{Kind: "EventList", APIVersion: "v1"}, Items: []v1.Event{}}
	for i := range all {
		if wants(&all[i]) {
			list.Items = append(list.Items, all[i])
		}
	}
	if gone != nil && len(list.Items) == 0 {
		return gone
	}
	if o.sort != "" {
		if err := sortBy(list.Items, o.sort); err != nil {
			return err
		}
	}
	return o.write(w, errOut, &list, columns)
}

// write writes a list of events.
func (o *eventsOptions) write(w, errOut io.Writer, list *v1.EventList, columns show.EventColumns) error {
	switch {
	case o.output.structured():
		return o.output.writeList(w, *list, o.noHeaders)
	case len(list.Items) == 0:
		fmt.Fprintln(errOut, "No events found.")
		return nil
	case o.output == "name":
		for i := range list.Items {
			if err := eventName(w, &list.Items[i]); err != nil {
				return err
			}
		}
		return nil
	}
	table := show.Events(list.Items, columns, time.Now())
	if o.noHeaders {
		table.Headings = nil
	}
	return table.Write(w)
}

// eventName writes the name of an event as kubectl does.
func eventName(w io.Writer, e *v1.Event) error {
	_, err := fmt.Fprintf(w, "event/%s\n", e.Name)
	return err
}

// filter returns which events are wanted. Events of a pod may still be kept after the pod was
// removed; gone is the error for such a pod.
func (o *eventsOptions) filter(ctx context.Context, c *client.Client) (wants func(*v1.Event) bool, gone, err error) {
	for _, kind := range o.types {
		if !strings.EqualFold(kind, v1.EventTypeNormal) && !strings.EqualFold(kind, v1.EventTypeWarning) {
			return nil, nil, wrongly("--types %s: valid --types are Normal or Warning", kind)
		}
	}
	about := func(e *v1.Event) bool { return o.namespace == "" || e.Namespace == o.namespace }
	if o.pod != "" {
		pod, err := findPod(ctx, c, o.pod, o.namespace)
		var unknown *unknownPodError
		switch {
		case err == nil:
			about = func(e *v1.Event) bool { return aboutPod(e, pod.Namespace, pod.Name) }
		case errors.As(err, &unknown):
			namespace, name := splitPod(o.pod, o.namespace)
			about = func(e *v1.Event) bool {
				return aboutPod(e, namespace, name) || aboutPod(e, namespace, name+"-"+strings.ToLower(e.Source.Host))
			}
			gone = unknown
		default:
			return nil, nil, err
		}
	}
	return func(e *v1.Event) bool {
		return about(e) &&
			(len(o.types) == 0 ||
				slices.ContainsFunc(o.types, func(kind string) bool { return strings.EqualFold(kind, e.Type) }))
	}, gone, nil
}

// aboutPod reports whether an event is about the pod with that name; an empty namespace means any.
func aboutPod(e *v1.Event, namespace, name string) bool {
	return e.InvolvedObject.Kind == "Pod" && e.InvolvedObject.Name == name &&
		(namespace == "" || e.InvolvedObject.Namespace == namespace)
}

func (o *eventsOptions) follow(
	ctx context.Context, c *client.Client, w io.Writer, columns show.EventColumns, wants func(*v1.Event) bool,
) error {
	widths := (&show.Table{Headings: columns.Headings()}).Widths()
	if (o.output == "" || o.output == "wide") && !o.noHeaders {
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
		case "name":
			return eventName(w, &e)
		}
		_, err := fmt.Fprintln(w, widths.Line(columns.Row(&e, time.Now())))
		return err
	})
}
