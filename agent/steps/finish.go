package steps

import (
	"context"
	"time"

	"github.com/berthd/berth/agent/tasks"
)

// finishWithin is how long a call that makes something goes on after its pass was overtaken or the agent was told to end. A runtime that is cut off in the middle
// leaves things half made: names that stay reserved for seconds, shims that it has forgotten, starts that look like crashes. Most calls take a tenth of a second; a
// runtime that hangs must not keep a pod from being deleted.
const finishWithin = 5 * time.Second

// finishing returns a context for a call that makes something: it ends [finishWithin] after ctx does, but has ended where ctx has, so that nothing new is
// begun. The function returned must be called after the call.
func finishing(ctx context.Context) (context.Context, context.CancelFunc) {
	if ctx.Err() != nil {
		return ctx, func() {}
	}
	longer, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		if tasks.Sleep(longer, finishWithin) {
			cancel(context.Cause(ctx))
		}
	})
	return longer, func() {
		stop()
		cancel(nil)
	}
}
