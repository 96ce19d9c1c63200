package main

import (
	"github.com/spf13/cobra"

	"github.com/berthd/berth/client"
)

func newPortForward() *cobra.Command {
	var conn connection
	var namespace string
	var addresses []string
	cmd := &cobra.Command{
		Use:   "port-forward POD [LOCAL:]REMOTE...",
		Short: "Reach a pod's ports from this host",
		Example: `  berth port-forward web 8080:80
  berth port-forward web :80                   # any free local port
  berth port-forward web 80 --address 0.0.0.0  # for others, too`,
		Args:              cobra.MinimumNArgs(2),
		ValidArgsFunction: completePods(&conn),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, c := cmd.Context(), conn.client()
			defer c.Close()
			pod, err := findPod(ctx, c, args[0], namespace)
			if err != nil {
				return err
			}
			err = c.PortForward(ctx, client.Forward{
				Namespace: pod.Namespace, Pod: pod.Name, Addresses: addresses, Ports: args[1:],
				Out: cmd.OutOrStdout(), Err: cmd.ErrOrStderr(),
			})
			return ended(ctx, err)
		},
	}
	conn.flag(cmd)
	cmd.Flags().StringVarP(&namespace, "namespace", "n", "", "the pod's namespace")
	cmd.Flags().StringSliceVar(&addresses, "address", []string{"localhost"}, "local addresses to listen on")
	return cmd
}
