package credentials

import "context"

// Node has the credentials that every pod may use: those of the node's files, and then those of its
// plugins.
type Node struct {
	Files   *Files
	Plugins *Plugins
}

// Lookup returns the node's credentials for a repository, the best first. It may wait for plugins;
// [Plugins.Lookup] explains the errors.
func (n Node) Lookup(ctx context.Context, repository string) ([]Credential, error) {
	list := n.Files.Lookup(repository)
	given, err := n.Plugins.Lookup(ctx, repository)
	return append(list, given...), err
}

// State identifies the content of the node's files: it changes if one of them changes.
func (n Node) State() string { return n.Files.State() }
