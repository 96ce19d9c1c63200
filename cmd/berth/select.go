package main

import (
	"context"

	"github.com/spf13/cobra"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/berthd/berth/client"
	"github.com/berthd/berth/internal/pods"
)

// podFlags are the flags that choose pods if no POD is given.
type podFlags struct {
	namespace, selector string
	all                 bool
}

// namespaceFlag adds -n.
func namespaceFlag(cmd *cobra.Command, into *string) {
	cmd.Flags().StringVarP(into, "namespace", "n", "", "the pod's namespace (default any)")
	_ = cmd.RegisterFlagCompletionFunc("namespace", completeNamespaces)
}

// flags adds -n, -A and -l.
func (p *podFlags) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVarP(&p.namespace, "namespace", "n", "", "only pods of this namespace")
	f.BoolVarP(&p.all, "all-namespaces", "A", false, "pods of all namespaces (the default)")
	p.selectorFlag(cmd)
	cmd.MarkFlagsMutuallyExclusive("namespace", "all-namespaces")
	_ = cmd.RegisterFlagCompletionFunc("namespace", completeNamespaces)
}

func (p *podFlags) selectorFlag(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&p.selector, "selector", "l", "", "only pods with these `LABELS`, such as app=web,tier!=db")
}

// errNameAndSelector is the error of a command with a name and a selector.
var errNameAndSelector = wrongly("name cannot be provided when a selector is specified")

// choice has the chosen pods: named ones, or those of a namespace with certain labels.
type choice struct {
	// named has the namespaces and names of the named pods; nil if none was named.
	named     map[string]bool
	namespace string
	selector  labels.Selector
}

// choose returns the pods that the arguments choose, or that the flags choose if there are no
// arguments.
func (p *podFlags) choose(ctx context.Context, c *client.Client, args []string) (*choice, error) {
	out := &choice{namespace: p.namespace}
	var err error
	if out.selector, err = labels.Parse(p.selector); err != nil {
		return nil, wrongly("-l %s: %w", p.selector, err)
	}
	if len(args) == 0 {
		return out, nil
	}
	if p.selector != "" {
		return nil, errNameAndSelector
	}
	out.named = map[string]bool{}
	for _, arg := range args {
		pod, err := findPod(ctx, c, arg, p.namespace)
		if err != nil {
			return nil, err
		}
		out.named[pods.FullName(pod)] = true
	}
	return out, nil
}

// has reports whether a pod is chosen.
func (c *choice) has(namespace, name string, set map[string]string) bool {
	if c.named != nil {
		return c.named[namespace+"/"+name]
	}
	return (c.namespace == "" || c.namespace == namespace) && c.selector.Matches(labels.Set(set))
}

// pods returns the chosen pods from those of the agent.
func (c *choice) pods(all []v1.Pod) []v1.Pod {
	var out []v1.Pod
	for i := range all {
		if p := &all[i]; c.has(p.Namespace, p.Name, p.Labels) {
			out = append(out, *p)
		}
	}
	return out
}
