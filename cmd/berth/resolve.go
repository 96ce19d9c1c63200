package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	v1 "k8s.io/api/core/v1"

	"github.com/berthd/berth/client"
)

// maxCandidates bounds how many pods an error lists.
const maxCandidates = 10

// findPod asks the agent for the pod that an argument names: NAME, NAMESPACE/NAME, or a static pod's name in its manifest.
func findPod(ctx context.Context, c *client.Client, arg, namespace string) (*v1.Pod, error) {
	pods, err := c.Pods(ctx)
	if err != nil {
		return nil, err
	}
	return choosePod(pods, arg, namespace)
}

// choosePod finds the one pod that an argument names. A name in full goes before a manifest's name, and a pod that is there to stay before one that is
// leaving, which the agent lists after it.
func choosePod(pods []v1.Pod, arg, namespace string) (*v1.Pod, error) {
	name := arg
	if ns, rest, ok := strings.Cut(arg, "/"); ok {
		if name = rest; ns != "pod" && ns != "pods" && ns != "po" {
			if namespace != "" && namespace != ns {
				return nil, fmt.Errorf("%s is not in namespace %s: leave out -n", arg, namespace)
			}
			namespace = ns
		}
	}
	for _, matches := range []func(*v1.Pod) bool{
		func(p *v1.Pod) bool { return p.Name == name },
		func(p *v1.Pod) bool {
			return p.Spec.NodeName != "" && p.Name == name+"-"+strings.ToLower(p.Spec.NodeName)
		},
	} {
		var found []*v1.Pod
		for i := range pods {
			p := &pods[i]
			same := func(f *v1.Pod) bool { return f.Namespace == p.Namespace && f.Name == p.Name }
			if (namespace == "" || p.Namespace == namespace) && matches(p) && !slices.ContainsFunc(found, same) {
				found = append(found, p)
			}
		}
		switch len(found) {
		case 0:
		case 1:
			return found[0], nil
		default:
			return nil, fmt.Errorf("%s is ambiguous: say which: %s", arg, list(found))
		}
	}
	return nil, noSuchPod(pods, arg, namespace)
}

// unknownPodError is the error of a name that no pod has.
type unknownPodError struct{ message string }

// Error says which pods there are.
func (e *unknownPodError) Error() string { return e.message }

func noSuchPod(pods []v1.Pod, arg, namespace string) error {
	var all []*v1.Pod
	for i := range pods {
		if namespace == "" || pods[i].Namespace == namespace {
			all = append(all, &pods[i])
		}
	}
	where := "on this node"
	if namespace != "" {
		where = "in namespace " + namespace + " on this node"
	}
	if len(all) == 0 {
		return &unknownPodError{fmt.Sprintf("no pod %q: there is no pod %s (see \"berth manifests\")", arg, where)}
	}
	return &unknownPodError{fmt.Sprintf("no pod %q %s; there are: %s", arg, where, list(all))}
}

func list(pods []*v1.Pod) string {
	var names []string
	for _, p := range pods {
		if len(names) == maxCandidates {
			names = append(names, "…")
			break
		}
		names = append(names, p.Namespace+"/"+p.Name)
	}
	return strings.Join(names, ", ")
}

// completePods completes the first argument with the node's pods.
func completePods(conn *connection) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		pods, err := conn.client().Summaries(cmd.Context())
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

// defaultContainerAnnotation names the container that is meant when none is, kubectl's.
const defaultContainerAnnotation = "kubectl.kubernetes.io/default-container"

// chooseContainer returns the container that is meant: the named one, the annotated one, else the first; note says so where there was a choice.
func chooseContainer(pod *v1.Pod, name string) (container, note string, err error) {
	names := containersOf(pod)
	if name != "" {
		if !slices.Contains(names, name) {
			return "", "", fmt.Errorf("pod %s/%s has no container %q; it has %s", pod.Namespace, pod.Name, name, strings.Join(names, ", "))
		}
		return name, "", nil
	}
	if d := pod.Annotations[defaultContainerAnnotation]; d != "" && slices.Contains(names, d) {
		return d, "", nil
	}
	if len(pod.Spec.Containers) == 0 {
		return "", "", fmt.Errorf("pod %s/%s has no containers yet", pod.Namespace, pod.Name)
	}
	first := pod.Spec.Containers[0].Name
	if len(names) > 1 {
		note = fmt.Sprintf("Defaulted container %q out of: %s", first, strings.Join(described(pod), ", "))
	}
	return first, note, nil
}

// containersOf returns the names of the pod's containers, app containers first.
func containersOf(pod *v1.Pod) []string {
	var names []string
	for i := range pod.Spec.Containers {
		names = append(names, pod.Spec.Containers[i].Name)
	}
	for i := range pod.Spec.EphemeralContainers {
		names = append(names, pod.Spec.EphemeralContainers[i].Name)
	}
	for i := range pod.Spec.InitContainers {
		names = append(names, pod.Spec.InitContainers[i].Name)
	}
	return names
}

func described(pod *v1.Pod) []string {
	names := containersOf(pod)
	apps, ephemeral := len(pod.Spec.Containers), len(pod.Spec.EphemeralContainers)
	for i := range names {
		switch {
		case i < apps:
		case i < apps+ephemeral:
			names[i] += " (ephem)"
		default:
			names[i] += " (init)"
		}
	}
	return names
}
