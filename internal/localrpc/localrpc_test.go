package localrpc

import (
	"context"
	"strings"
	"testing"

	"golang.org/x/time/rate"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Requests beyond the limit are refused, and are no work, whether they stream or not.
func TestLimit(t *testing.T) {
	answered := 0
	next := func(context.Context, any) (any, error) {
		answered++
		return nil, nil
	}
	nextStream := func(any, grpc.ServerStream) error {
		answered++
		return nil
	}
	limiter := rate.NewLimiter(0, 2)
	single, stream := limited(limiter), limitedStream(limiter)
	for i, request := range []func() error{
		func() error { _, err := single(t.Context(), nil, nil, next); return err },
		func() error { return stream(nil, nil, nil, nextStream) },
		func() error { _, err := single(t.Context(), nil, nil, next); return err },
		func() error { return stream(nil, nil, nil, nextStream) },
	} {
		err := request()
		if refused := err != nil; refused != (i >= 2) {
			t.Errorf("request %d: %v", i, err)
		}
		if err != nil && (status.Code(err) != codes.ResourceExhausted ||
			!strings.Contains(err.Error(), "rejected by rate limit")) {
			t.Error(err)
		}
	}
	if answered != 2 {
		t.Errorf("%d answered", answered)
	}
}
