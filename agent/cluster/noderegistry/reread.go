package noderegistry

import (
	"context"
	"time"
)

// rereading bounds the time of [Registry.Reread]: a pod waits for it.
const rereading = 5 * time.Second

// Reread asks the API server for the Node, which may be newer than what the follower has heard. If
// the API server does not answer, what the follower has heard counts.
func (r *Registry) Reread(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, rereading)
	defer cancel()
	node, err := r.deps.Nodes.Get(ctx, "", r.cfg.Name)
	if err != nil {
		r.deps.Logger.Warn("node not read anew from the API server", "node", r.cfg.Name, "err", err)
		return
	}
	r.know(node)
}
