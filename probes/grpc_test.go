package probes

import (
	"context"
	"net"
	"strings"
	"testing"

	"google.golang.org/grpc"
	grpchealth "google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	v1 "k8s.io/api/core/v1"
)

func grpcTask(port int32, service *string) task {
	return task{
		container: &v1.Container{Name: "c"},
		podIP:     "127.0.0.1",
		spec: &v1.Probe{
			ProbeHandler: v1.ProbeHandler{GRPC: &v1.GRPCAction{Port: port, Service: service}}, TimeoutSeconds: patient,
		},
	}
}

// serveGRPC serves on a loopback port until the test ends.
func serveGRPC(t testing.TB, register func(*grpc.Server), opts ...grpc.ServerOption) int32 {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(opts...)
	register(server)
	done := make(chan error)
	go func() { done <- server.Serve(l) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-done; err != nil {
			t.Errorf("serve gRPC: %v", err)
		}
	})
	return int32(l.Addr().(*net.TCPAddr).Port)
}

// hangingHealth answers no check.
type hangingHealth struct {
	healthv1.UnimplementedHealthServer
}

func (hangingHealth) Check(ctx context.Context, _ *healthv1.HealthCheckRequest) (*healthv1.HealthCheckResponse, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func TestGRPC(t *testing.T) {
	agents := make(chan string, 100)
	port := serveGRPC(t, func(s *grpc.Server) {
		h := grpchealth.NewServer()
		h.SetServingStatus("down", healthv1.HealthCheckResponse_NOT_SERVING)
		healthv1.RegisterHealthServer(s, h)
	},
		grpc.UnaryInterceptor(func(ctx context.Context, req any, _ *grpc.UnaryServerInfo,
			next grpc.UnaryHandler,
		) (any, error) {
			md, _ := metadata.FromIncomingContext(ctx)
			agents <- strings.Join(md.Get("user-agent"), ",")
			return next(ctx, req)
		}))
	down, missing := "down", "missing"
	tests := []struct {
		name    string
		port    int32
		service *string
		timeout int32
		want    outcome
		text    string
	}{
		{"serving", port, nil, patient, success, "service healthy"},
		{"a service that is down", port, &down, patient, failure, `service unhealthy (responded with "NOT_SERVING")`},
		{
			"a service that it does not know", port, &missing, patient, failure,
			"error: health rpc probe failed: rpc error: code = NotFound desc = unknown service",
		},
		{
			"no health service", serveGRPC(t, func(*grpc.Server) {}), nil, patient, failure,
			"error: this server does not implement the grpc health protocol (grpc.health.v1.Health): unknown service " +
				"grpc.health.v1.Health",
		},
		{
			"hangs", serveGRPC(t, func(s *grpc.Server) { healthv1.RegisterHealthServer(s, hangingHealth{}) }), nil,
			brief, failure,
			"timeout: health rpc did not complete within 3s",
		},
		{"nobody listens", closedPort(t), nil, brief, failure, "connect: connection refused"},
		{"never answers", silent(t), nil, 1, failure, "within 1s: context deadline exceeded"},
		{
			"hangs up", listen(t, func(c net.Conn) { c.Close() }), nil, 1, failure,
			"within 1s: context deadline exceeded",
		},
	}
	p := testProber(Config{UserAgent: "kube-probe/test"})
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := p.run(t.Context(), within(tt.timeout, grpcTask(tt.port, tt.service)))
			if err != nil || got.outcome != tt.want || !strings.Contains(got.text, tt.text) {
				t.Errorf("got %s %q, %v; want %s %q", got.outcome, got.text, err, tt.want, tt.text)
			}
		})
	}
	if got := <-agents; !strings.HasPrefix(got, "kube-probe/test ") {
		t.Errorf("user agent %q", got)
	}
}
