package remote

import "context"

// ForgottenShims returns the process ids of the shims that [Runtime.EndForgottenShims] would look at again, without doing anything about them. One that
// containerd is just removing may be among them.
func (r *Runtime) ForgottenShims(ctx context.Context) ([]int, error) {
	socket, err := socketPath(r.cfg.Endpoint)
	if err != nil {
		return nil, err
	}
	found, err := forgottenShims(ctx, socket)
	var pids []int
	for _, s := range found {
		pids = append(pids, s.pid)
	}
	return pids, err
}
