package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/berthd/berth/client"
	"github.com/berthd/berth/client/api"
	"github.com/berthd/berth/client/show"
)

// maxCandidates is how many pods an error lists.
const maxCandidates = 10

// findPod asks the agent for the pod in an argument: NAME, NAMESPACE/NAME, or a static pod's name
// in its manifest. If the pod does not exist because its manifest was refused, the node is drained,
// or the runtime is silent, the error says so.
func findPod(ctx context.Context, c *client.Client, arg, namespace string) (*v1.Pod, error) {
	pods, err := c.Pods(ctx)
	if err != nil {
		return nil, err
	}
	pod, err := choosePod(pods, arg, namespace)
	var unknown *unknownPodError
	if !errors.As(err, &unknown) {
		return pod, err
	}
	// If the agent does not answer, the error stays as it is.
	if list, merr := c.Manifests(ctx); merr == nil {
		if version, verr := c.Version(ctx); verr == nil {
			unknown.blame(list.Items, arg, namespace, version.Node)
		}
	}
	if st, serr := c.Status(ctx); serr == nil && unknown.manifest == nil {
		unknown.message += show.Absent(st)
	}
	return nil, unknown
}

// choosePod finds the one pod that an argument names. A full name wins over a manifest's name. A
// pod that stays wins over one that is being removed, which the agent lists later.
func choosePod(pods []v1.Pod, arg, namespace string) (*v1.Pod, error) {
	given := namespace
	namespace, name := splitPod(arg, namespace)
	if given != "" && namespace != given {
		return nil, fmt.Errorf("%s is not in namespace %s: leave out -n", arg, given)
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

// splitPod splits NAME, pod/NAME or NAMESPACE/NAME. namespace is used for a name without a
// namespace.
func splitPod(arg, namespace string) (ns, name string) {
	before, rest, ok := strings.Cut(arg, "/")
	switch {
	case !ok:
		return namespace, arg
	case before == "pod" || before == "pods" || before == "po":
		return namespace, rest
	}
	return before, rest
}

// unknownPodError is the error of a name that no pod has.
type unknownPodError struct {
	message string
	// manifest is the validation result of the pod's manifest, if that was refused.
	manifest *api.Manifest
}

// Error says which pods exist, or what is wrong with the pod's manifest.
func (e *unknownPodError) Error() string { return e.message }

// blame looks for the reason in the validation results of manifests. Manifests that were refused
// early have no namespace, or no node's name in their own name, yet.
func (e *unknownPodError) blame(manifests []api.Manifest, arg, namespace, node string) {
	namespace, name := splitPod(arg, namespace)
	refused := 0
	for i := range manifests {
		m := &manifests[i]
		if m.Accepted {
			continue
		}
		refused++
		if m.Kind != "Pod" || m.Name == "" || namespace != "" && m.Namespace != "" && m.Namespace != namespace {
			continue
		}
		if full := name + "-" + strings.ToLower(node); m.Name == name || m.Name == full || m.Name+"-"+
			strings.ToLower(node) == name {
			e.manifest = m
			e.message = fmt.Sprintf("no pod %q: its manifest %s is refused: %s", arg, m.File, show.Problem(*m))
			return
		}
	}
	if refused > 0 {
		e.message += fmt.Sprintf(" (manifests refused: %d, see \"berth manifests\")", refused)
	}
}

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
		return &unknownPodError{message: fmt.Sprintf("no pod %q: there is no pod %s", arg, where)}
	}
	return &unknownPodError{message: fmt.Sprintf("no pod %q %s; there are: %s", arg, where, list(all))}
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

// findContainer finds the pod, and the container if one is named, in an argument: what [findPod]
// takes, or that with /CONTAINER behind it. A pod of that name wins. given is the container that a
// flag or another argument names; it must be the same.
func findContainer(
	ctx context.Context, c *client.Client, arg, namespace, given string,
) (pod *v1.Pod, container string, err error) {
	pod, err = findPod(ctx, c, arg, namespace)
	at := strings.LastIndex(arg, "/")
	if unknown := (*unknownPodError)(nil); err == nil || !errors.As(err, &unknown) || at < 0 {
		return pod, given, err
	}
	of, other := findPod(ctx, c, arg[:at], namespace)
	if other != nil {
		return nil, "", err
	}
	container, err = oneContainer(arg, arg[at+1:], given)
	return of, container, err
}

// oneContainer returns the container that an argument names. given is the one that is named
// otherwise; empty for none.
func oneContainer(arg, named, given string) (string, error) {
	if given != "" && given != named {
		return "", wrongly("%s names container %s, and container %s is given, too: leave one out", arg, named, given)
	}
	return named, nil
}

// defaultContainerAnnotation is kubectl's annotation with the container to use if none is named.
const defaultContainerAnnotation = "kubectl.kubernetes.io/default-container"

// chooseContainer returns the container to use: the named one, or the one in the annotation, or
// else the first one. note says that there was a choice.
func chooseContainer(pod *v1.Pod, name string) (container, note string, err error) {
	names := api.ContainerNames(pod)
	if name != "" {
		if !slices.Contains(names, name) {
			return "", "", fmt.Errorf("pod %s/%s has no container %q; it has %s", pod.Namespace, pod.Name, name,
				strings.Join(names, ", "))
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

func described(pod *v1.Pod) []string {
	names := api.ContainerNames(pod)
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
