package main

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
)

// TestHealthSpeaksGRPC asks the hand-written server with the library's client.
func TestHealthSpeaksGRPC(t *testing.T) {
	server := httptest.NewUnstartedServer(health(stateNot))
	server.Config.Protocols = new(http.Protocols)
	server.Config.Protocols.SetUnencryptedHTTP2(true)
	server.Start()
	t.Cleanup(server.Close)
	conn, err := grpc.NewClient(server.Listener.Addr().String(),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	client := grpc_health_v1.NewHealthClient(conn)
	for _, service := range []string{"", "known"} {
		resp, err := client.Check(t.Context(), &grpc_health_v1.HealthCheckRequest{Service: service})
		if err != nil || resp.Status != grpc_health_v1.HealthCheckResponse_NOT_SERVING {
			t.Errorf("service %q: %v, %v", service, resp, err)
		}
	}
	if _, err := client.Check(t.Context(), &grpc_health_v1.HealthCheckRequest{
		Service: "strange",
	}); status.Code(err) != codes.NotFound {
		t.Errorf("unknown service: %v", err)
	}
}
