package credentials

import "context"

// Node is what every pod of the node may log in with: the node's files, then its plugins.
type Node struct {
	Files   *Files
	Plugins *Plugins
}

// Lookup returns the node's credentials for a repository, the best first. It may have to wait for plugins; see [Plugins.Lookup] for errors.
func (n Node) Lookup(ctx context.Context, repository string) ([]Credential, error) {
	list := n.Files.Lookup(repository)
	given, err := n.Plugins.Lookup(ctx, repository)
	return append(list, given...), err
}

// State identifies what the node's files say: it changes when one of them does.
func (n Node) State() string { return n.Files.State() }
