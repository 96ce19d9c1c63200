package steps

import (
	"context"
	"time"

	"github.com/berthd/berth/internal/retry"
)

// finishWithin is how long a call that makes something goes on after its sync was overtaken or the
// agent began to end. A runtime that is cut off in the middle leaves things half made: names that
// stay reserved for seconds, shims that it has forgotten, starts that look like crashes. Most calls
// take a tenth of a second. A runtime that hangs must not keep a pod from being deleted.
const finishWithin = 5 * time.Second

// finishing returns a context for a call that makes something. The context ends [finishWithin]
// after ctx ends. If ctx has ended already, so has the context: nothing new is begun. The function
// returned must be called after the call.
func finishing(ctx context.Context) (context.Context, context.CancelFunc) {
	if ctx.Err() != nil {
		return ctx, func() {}
	}
	longer, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		if retry.Sleep(longer, finishWithin) {
			cancel(context.Cause(ctx))
		}
	})
	return longer, func() {
		stop()
		cancel(nil)
	}
}
