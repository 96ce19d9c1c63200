package main

import (
	"slices"
	"strconv"

	"github.com/spf13/cobra"
	v1 "k8s.io/api/core/v1"

	"github.com/berthd/berth/client"
	"github.com/berthd/berth/client/api"
)

// completePods completes up to most first arguments with the names of the node's pods.
func completePods(conn *connection, most int) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) >= most {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		c := conn.client()
		defer c.Close()
		pods, err := c.Summaries(cmd.Context())
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		var names []string
		for _, p := range pods {
			names = append(names, p.Namespace+"/"+p.Name)
			if p.Namespace == v1.NamespaceDefault {
				names = append(names, p.Name)
			}
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}

// completeContainerPaths completes up to most first arguments with the names of pods and, behind a
// slash, of their containers.
func completeContainerPaths(conn *connection, most int) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) >= most {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		c := conn.client()
		defer c.Close()
		pods, err := c.Pods(cmd.Context())
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		var names []string
		for i := range pods {
			p := &pods[i]
			of := []string{p.Namespace + "/" + p.Name}
			if p.Namespace == v1.NamespaceDefault {
				of = append(of, p.Name)
			}
			for _, name := range of {
				names = append(names, name)
				for _, container := range api.ContainerNames(p) {
					names = append(names, name+"/"+container)
				}
			}
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}

// completePorts completes the first argument with a pod, and those behind it with the pod's ports.
func completePorts(conn *connection) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		if len(args) == 0 {
			return completePods(conn, 1)(cmd, args, typed)
		}
		c := conn.client()
		defer c.Close()
		namespace, _ := cmd.Flags().GetString("namespace")
		pod, err := findPod(cmd.Context(), c, args[0], namespace)
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		var ports []string
		for i := range pod.Spec.Containers {
			for _, port := range pod.Spec.Containers[i].Ports {
				ports = append(ports, strconv.Itoa(int(port.ContainerPort)))
				if port.Name != "" {
					ports = append(ports, port.Name)
				}
			}
		}
		return ports, cobra.ShellCompDirectiveNoFileComp
	}
}

// completeNamespaces completes -n with the namespaces of the node's pods.
func completeNamespaces(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	c := flaggedClient(cmd)
	defer c.Close()
	pods, err := c.Summaries(cmd.Context())
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	var names []string
	for _, p := range pods {
		names = append(names, p.Namespace)
	}
	slices.Sort(names)
	return slices.Compact(names), cobra.ShellCompDirectiveNoFileComp
}

// completeContainers completes -c with the containers of the pod in the first argument.
func completeContainers(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) == 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	c := flaggedClient(cmd)
	defer c.Close()
	namespace, _ := cmd.Flags().GetString("namespace")
	pod, err := findPod(cmd.Context(), c, args[0], namespace)
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	return api.ContainerNames(pod), cobra.ShellCompDirectiveNoFileComp
}

// flaggedClient returns a client of the agent that the flags of a verb name.
func flaggedClient(cmd *cobra.Command) *client.Client {
	socket, _ := cmd.Flags().GetString("socket")
	conn := connection{agentFlags{set: cmd.Flags(), socket: socket}}
	return conn.client()
}
