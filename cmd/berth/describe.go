package main

import (
	"context"
	"fmt"
	"io"
	"math"
	"time"

	"github.com/spf13/cobra"
	v1 "k8s.io/api/core/v1"

	"github.com/berthd/berth/client"
	"github.com/berthd/berth/client/show"
)

func newDescribe() *cobra.Command {
	var conn connection
	var pods podFlags
	cmd := &cobra.Command{
		Use:   "describe [pod] [POD...]",
		Short: "Show all about pods: their containers, events, and what they wait for",
		Long: `Show all about pods: their containers, events, and what they wait for. As with kubectl, the word pod may stand
before the names, and "describe node" shows the node.`,
		Example: `  berth describe web
  berth describe pod web
  berth describe node
  berth describe -l app=web
  berth describe kube-system/coredns`,
		ValidArgsFunction: completePods(&conn, math.MaxInt),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, c := cmd.Context(), conn.client()
			defer c.Close()
			if meansNode(ctx, c, args, pods.namespace) {
				return describeNode(ctx, c, cmd.OutOrStdout())
			}
			chosen, err := pods.choose(ctx, c, withoutKind(ctx, c, args, pods.namespace))
			if err != nil {
				return err
			}
			noteNode(ctx, c, cmd)
			return describe(ctx, c, chosen, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	conn.flag(cmd)
	pods.flags(cmd)
	return cmd
}

// describeNode writes the state of the node.
func describeNode(ctx context.Context, c *client.Client, w io.Writer) error {
	st, err := c.Status(ctx)
	if err != nil {
		return err
	}
	return show.Status(w, st, time.Now())
}

// describe writes everything about the chosen pods.
func describe(ctx context.Context, c *client.Client, chosen *choice, w, errOut io.Writer) error {
	all, err := c.Pods(ctx)
	if err != nil {
		return err
	}
	events, err := c.Events(ctx, time.Time{})
	if err != nil {
		return err
	}
	pods := chosen.pods(all)
	if len(pods) == 0 {
		fmt.Fprintln(errOut, "No pods found.")
	}
	for i := range pods {
		pod := &pods[i]
		if i > 0 && pod.Namespace == pods[i-1].Namespace && pod.Name == pods[i-1].Name {
			continue // the predecessor, which is being removed
		}
		why, err := c.Why(ctx, pod.Namespace, pod.Name)
		if err != nil {
			return err
		}
		if i > 0 {
			fmt.Fprint(w, "\n\n")
		}
		if err := show.Describe(w, pod, about(events, pod), why, time.Now()); err != nil {
			return err
		}
	}
	return nil
}

// about returns the events about a pod.
func about(events []v1.Event, pod *v1.Pod) []v1.Event {
	var out []v1.Event
	for i := range events {
		if o := &events[i].InvolvedObject; o.Kind == "Pod" && o.Namespace == pod.Namespace && o.Name == pod.Name &&
			(o.UID == "" || o.UID == pod.UID) {
			out = append(out, events[i])
		}
	}
	return out
}
