package main

import (
	"bytes"
	"cmp"
	"context"
	"math"
	"path"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/berthd/berth/client"
)

// completePlaces completes the places of a copy: pods and their containers with a colon behind
// them, the files of a container behind the colon, and local files.
func completePlaces(conn *connection) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
		if from := parsePlace(typed); from.pod != "" {
			return remoteFiles(cmd, conn, from), cobra.ShellCompDirectiveNoSpace | cobra.ShellCompDirectiveNoFileComp
		}
		names, _ := completeContainerPaths(conn, math.MaxInt)(cmd, nil, typed)
		for i := range names {
			names[i] += ":"
		}
		return names, cobra.ShellCompDirectiveNoSpace
	}
}

// completeWait is how long a container may take to list a directory for a completion.
const completeWait = 3 * time.Second

// remoteFiles lists the files of a container in the directory of a place. It lists none if the
// container has no ls, or no such directory.
func remoteFiles(cmd *cobra.Command, conn *connection, in place) []string {
	ctx, cancel := context.WithTimeout(cmd.Context(), completeWait)
	defer cancel()
	c := conn.client()
	defer c.Close()
	namespace, _ := cmd.Flags().GetString("namespace")
	given, _ := cmd.Flags().GetString("container")
	pod, container, err := findContainer(ctx, c, in.pod, namespace, given)
	if err != nil {
		return nil
	}
	if container, _, err = chooseContainer(pod, container); err != nil {
		return nil
	}
	dir, _ := path.Split(in.path)
	from := cmp.Or(dir, ".")
	var out bytes.Buffer
	r := inside{client: c, target: client.Target{Namespace: pod.Namespace, Pod: pod.Name, Container: container}}
	if r.run(ctx, nil, &out, "ls", "-1Ap", "--", from) != nil {
		return nil
	}
	var files []string
	for name := range strings.Lines(out.String()) {
		files = append(files, in.pod+":"+dir+strings.TrimSuffix(name, "\n"))
	}
	return files
}
