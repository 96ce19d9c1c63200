package credentials

import (
	"context"

	v1 "k8s.io/api/core/v1"
)

// Node has the node's own credentials: those of its files, which every pod may use, and then those
// of its plugins, which may be for pods of one service account.
type Node struct {
	Files   *Files
	Plugins *Plugins
}

// Lookup returns the node's credentials for a pod and a repository, the best first. It may wait for
// plugins; [Plugins.Lookup] explains the errors.
func (n Node) Lookup(ctx context.Context, pod *v1.Pod, repository string) ([]Credential, error) {
	list := n.Files.Lookup(repository)
	given, err := n.Plugins.Lookup(ctx, pod, repository)
	return append(list, given...), err
}

// PerAccount reports whether the credentials for a repository may depend on the service account of
// the pod.
func (n Node) PerAccount(repository string) bool { return n.Plugins.PerAccount(repository) }

// Account returns a pod's service account if the node has credentials for the account and the
// repository; see [Plugins.Account].
func (n Node) Account(ctx context.Context, pod *v1.Pod, repository string) Source {
	return n.Plugins.Account(ctx, pod, repository)
}

// State identifies the content of the node's files: it changes if one of them changes.
func (n Node) State() string { return n.Files.State() }
