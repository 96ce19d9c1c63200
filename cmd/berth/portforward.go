package main

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	v1 "k8s.io/api/core/v1"

	"github.com/berthd/berth/client"
)

func newPortForward() *cobra.Command {
	var conn connection
	var namespace string
	var addresses []string
	cmd := &cobra.Command{
		Use:   "port-forward POD [LOCAL:]REMOTE...",
		Short: "Reach a pod's ports from this host",
		Long: "Reach a pod's ports from this host, until Ctrl-C. REMOTE is a number, or the name of a port in the " +
			"pod's spec.",
		Example: `  berth port-forward web 8080
  berth port-forward web 8081:8080
  berth port-forward web :http           # any free local port, to the port that is called http
  berth port-forward web 8082:8080 --address 0.0.0.0   # for others, too`,
		ValidArgsFunction: completePorts(&conn),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) < 2 {
				return wrongly("POD and list of ports are required for port-forward")
			}
			ctx, c := cmd.Context(), conn.client()
			defer c.Close()
			pod, err := findPod(ctx, c, args[0], namespace)
			if err != nil {
				return err
			}
			ports, err := namedPorts(pod, args[1:])
			if err != nil {
				return err
			}
			err = c.PortForward(ctx, client.Forward{
				Namespace: pod.Namespace, Pod: pod.Name, Addresses: addresses, Ports: ports,
				Out: cmd.OutOrStdout(), Err: cmd.ErrOrStderr(),
			})
			return ended(ctx, err)
		},
	}
	conn.flag(cmd)
	namespaceFlag(cmd, &namespace)
	cmd.Flags().StringSliceVar(&addresses, "address", []string{"localhost"}, "local addresses to listen on")
	return cmd
}

// namedPorts replaces the names of the pod's ports by their numbers. The client refuses a port that
// is neither a number nor a name.
func namedPorts(pod *v1.Pod, specs []string) ([]string, error) {
	out := make([]string, 0, len(specs))
	for _, spec := range specs {
		local, remote, two := strings.Cut(spec, ":")
		if !two {
			remote = spec
		}
		if _, err := strconv.Atoi(remote); err == nil || remote == "" || strings.Contains(remote, ":") {
			out = append(out, spec)
			continue
		}
		number := portNamed(pod, remote)
		switch {
		case number == 0:
			return nil, fmt.Errorf("pod %q does not have a named port %q", pod.Name, remote)
		case two:
			out = append(out, fmt.Sprintf("%s:%d", local, number))
		default:
			out = append(out, fmt.Sprint(number))
		}
	}
	return out, nil
}

// portNamed returns the number of a container's port with this name, 0 if there is none.
func portNamed(pod *v1.Pod, name string) int32 {
	for _, list := range [][]v1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
		for i := range list {
			for _, port := range list[i].Ports {
				if port.Name == name {
					return port.ContainerPort
				}
			}
		}
	}
	return 0
}
