package probes

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
)

const (
	// grpcBuffer is the size of a connection's read and write buffers, in bytes. A health check is
	// much smaller.
	grpcBuffer = 1 << 10
	// grpcMaxMessage is the largest answer, in bytes. A HealthCheckResponse has a few bytes.
	grpcMaxMessage = 16 << 10
)

// grpcHealth asks the grpc.health.v1 service of the pod over a new connection. As gRPC clients do,
// it tries to reach the server until the timeout.
func (p *prober) grpcHealth(ctx context.Context, t task, timeout time.Duration) (reply, error) {
	host, err := hostOr("", t.podIP)
	if err != nil {
		return reply{outcome: unknown}, err
	}
	address := net.JoinHostPort(host, strconv.Itoa(int(t.spec.GRPC.Port)))
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()

	var lastDial atomic.Pointer[error]
	dial := func(ctx context.Context, address string) (net.Conn, error) {
		conn, err := p.dialers.dialer(0).DialContext(ctx, "tcp", address)
		if err != nil {
			lastDial.Store(&err)
		}
		return conn, err
	}
	conn, err := grpc.NewClient("passthrough:///"+address, p.grpcOptions(dial)...)
	if err != nil {
		return reply{outcome: unknown}, fmt.Errorf("make gRPC client for %s: %w", address, err)
	}
	defer func() { _ = conn.Close() }() // fails only if it was closed before

	if err := connect(ctx, conn); err != nil {
		if cause := lastDial.Load(); cause != nil && !errors.Is(*cause, context.DeadlineExceeded) {
			err = fmt.Errorf("%w (%w)", err, *cause)
		}
		return reply{
			outcome: failure,
			text:    fmt.Sprintf("timeout: failed to connect service %q within %v: %v", address, timeout, err),
		}, nil
	}
	service := ""
	if t.spec.GRPC.Service != nil {
		service = *t.spec.GRPC.Service
	}
	resp, err := healthv1.NewHealthClient(conn).Check(ctx, &healthv1.HealthCheckRequest{Service: service})
	return grpcReply(resp, err, timeout), nil
}

// grpcOptions keeps the client small: no credentials, proxies, retries or service configs.
func (p *prober) grpcOptions(dial func(context.Context, string) (net.Conn, error)) []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithUserAgent(p.userAgent),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(dial),
		grpc.WithNoProxy(),
		grpc.WithDisableServiceConfig(),
		grpc.WithDisableRetry(),
		grpc.WithIdleTimeout(0),
		grpc.WithReadBufferSize(grpcBuffer),
		grpc.WithWriteBufferSize(grpcBuffer),
		grpc.WithMaxHeaderListSize(maxHeaderBytes),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(grpcMaxMessage)),
	}
}

// connect waits until the connection is up or ctx ends.
func connect(ctx context.Context, conn *grpc.ClientConn) error {
	conn.Connect()
	for {
		state := conn.GetState()
		if state == connectivity.Ready {
			return nil
		}
		if state == connectivity.Idle {
			conn.Connect() // The server closed the connection during the handshake.
		}
		if !conn.WaitForStateChange(ctx, state) {
			return ctx.Err()
		}
	}
}

// grpcReply converts the answer to a reply.
func grpcReply(resp *healthv1.HealthCheckResponse, err error, timeout time.Duration) reply {
	switch status.Code(err) {
	case codes.OK:
		if state := resp.GetStatus(); state != healthv1.HealthCheckResponse_SERVING {
			return reply{outcome: failure, text: fmt.Sprintf("service unhealthy (responded with %q)", state.String())}
		}
		return reply{outcome: success, text: "service healthy"}
	case codes.Unimplemented:
		return reply{
			outcome: failure,
			text: "error: this server does not implement the grpc health protocol (grpc.health.v1.Health): " +
				status.Convert(err).Message(),
		}
	case codes.DeadlineExceeded:
		return reply{outcome: failure, text: fmt.Sprintf("timeout: health rpc did not complete within %v", timeout)}
	default:
		return reply{outcome: failure, text: fmt.Sprintf("error: health rpc probe failed: %v", err)}
	}
}
