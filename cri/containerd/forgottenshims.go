package containerd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/berthd/berth/cri/internal/shims"
	"github.com/berthd/berth/internal/retry"
)

// shimSettle is how long a shim must have been without its directory before it counts as forgotten.
// When a shim ends, containerd removes the directory a moment before the process has ended.
const shimSettle = 500 * time.Millisecond

// EndForgottenShims ends the shim processes that containerd started for a sandbox and then forgot,
// and returns their number. Containerd kills "containerd-shim-… start" when the caller of
// RunPodSandbox goes away (an agent that is killed, a deadline). If that command had already
// started its daemon, the daemon stays without limit: it is in no list of containerd, and its
// directory is removed (seen on 2.4.2).
//
// EndForgottenShims looks for a shim of this containerd, in containerd's mount namespace, whose
// working directory (its bundle) was removed some time ago and that has no child. It leaves a shim
// with children alone and logs it, because what runs in it may still be in use. If the runtime is
// not containerd, there are none.
func (r *Runtime) EndForgottenShims(ctx context.Context) (int, error) {
	whose := r.shims()
	found, err := shims.Of(ctx, whose, true)
	if err != nil || len(found) == 0 {
		return 0, err
	}
	if !retry.Sleep(ctx, shimSettle) {
		return 0, ctx.Err()
	}
	again, err := shims.Of(ctx, whose, true)
	if err != nil {
		return 0, err
	}
	var ended int
	var errs []error
	for _, s := range again {
		switch {
		case !slices.Contains(found, s):
		case s.Parent:
			const message = "a shim that containerd has forgotten still has a container's process: " +
				"end it by hand if nobody needs it"
			r.cfg.Logger.Warn(message, "pid", s.PID, "id", s.ID)
		default:
			if err := shims.End(ctx, s); err != nil {
				errs = append(errs, fmt.Errorf("end what containerd has forgotten: %w", err))
				continue
			}
			r.cfg.Logger.Warn("containerd had forgotten a shim; it is ended now", "pid", s.PID, "id", s.ID)
			ended++
		}
	}
	return ended, errors.Join(errs...)
}

// ForgottenShims returns the process IDs of the shims that [Runtime.EndForgottenShims] would check,
// and changes nothing. A shim that containerd is just removing may be among them.
func (r *Runtime) ForgottenShims(ctx context.Context) ([]int, error) {
	found, err := shims.Of(ctx, r.shims(), true)
	var pids []int
	for _, s := range found {
		pids = append(pids, s.PID)
	}
	return pids, err
}

// shims names the shims of the CRI plugin's sandboxes.
func (r *Runtime) shims() shims.Containerd {
	return shims.Containerd{Socket: r.socket, Namespace: criNamespace}
}
