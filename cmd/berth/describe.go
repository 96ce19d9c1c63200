package main

import (
	"time"

	"github.com/spf13/cobra"
	v1 "k8s.io/api/core/v1"

	"github.com/berthd/berth/client/show"
)

func newDescribe() *cobra.Command {
	var conn connection
	var namespace string
	cmd := &cobra.Command{
		Use:   "describe POD",
		Short: "Show all about a pod: its containers, events, and what it waits for",
		Example: `  berth describe web
  berth describe kube-system/coredns-node`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: completePods(&conn),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, c := cmd.Context(), conn.client()
			defer c.Close()
			pod, err := findPod(ctx, c, args[0], namespace)
			if err != nil {
				return err
			}
			events, err := c.Events(ctx)
			if err != nil {
				return err
			}
			why, err := c.Why(ctx, pod.Namespace, pod.Name)
			if err != nil {
				return err
			}
			return show.Describe(cmd.OutOrStdout(), pod, about(events, pod), why, time.Now())
		},
	}
	conn.flag(cmd)
	cmd.Flags().StringVarP(&namespace, "namespace", "n", "", "the pod's namespace")
	return cmd
}

// about returns the events about a pod.
func about(events []v1.Event, pod *v1.Pod) []v1.Event {
	var out []v1.Event
	for i := range events {
		if o := &events[i].InvolvedObject; o.Kind == "Pod" && o.Namespace == pod.Namespace && o.Name == pod.Name && (o.UID == "" || o.UID == pod.UID) {
			out = append(out, events[i])
		}
	}
	return out
}
