package remote

import (
	"context"
	"time"

	"google.golang.org/grpc"

	"github.com/berthd/berth/cri/internal/classify"
)

// method is one method of a gRPC client, as generated.
type method[Req, Resp any] func(ctx context.Context, req Req, opts ...grpc.CallOption) (Resp, error)

// noDeadline is the timeout of calls that may take as long as they need.
const noDeadline time.Duration = 0

// call makes one call, observes it and classifies its error. If the context has no deadline, the
// call has the deadline timeout, except with [noDeadline].
func call[Req, Resp any](
	ctx context.Context, r *Runtime, operation string, timeout time.Duration, m method[Req, Resp], req Req,
) (Resp, error) {
	if _, has := ctx.Deadline(); !has && timeout != noDeadline {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	start := time.Now()
	resp, err := m(ctx, req)
	err = classify.Error(operation, err)
	r.cfg.Observe(operation, time.Since(start), err)
	return resp, err
}

// seconds rounds a duration up to whole seconds, the CRI's unit. A negative duration is 0.
func seconds(d time.Duration) int64 {
	if d <= 0 {
		return 0
	}
	return int64((d + time.Second - 1) / time.Second)
}
