package cluster

import (
	"context"
	"net"
	"strings"
	"sync"
	"testing"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/prototext"
)

// Collector is an OpenTelemetry collector that keeps what it receives, as text.
type Collector struct {
	collector.UnimplementedTraceServiceServer
	mu   sync.Mutex
	text strings.Builder
}

// collectorAddress is the default address of OTLP.
const collectorAddress = "127.0.0.1:4317"

// StartCollector serves in the cluster's network, on OTLP's default port of loopback, until the
// test ends.
func (c *Cluster) StartCollector(t testing.TB) *Collector {
	t.Helper()
	var l net.Listener
	if err := c.In(func() (err error) {
		l, err = (&net.ListenConfig{}).Listen(t.Context(), "tcp", collectorAddress)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	out, server := &Collector{}, grpc.NewServer()
	collector.RegisterTraceServiceServer(server, out)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(l)
	}()
	t.Cleanup(func() {
		server.Stop()
		<-done
	})
	return out
}

// Export keeps spans.
func (o *Collector) Export(
	_ context.Context, r *collector.ExportTraceServiceRequest,
) (*collector.ExportTraceServiceResponse, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.text.WriteString(prototext.MarshalOptions{Multiline: true}.Format(r))
	return &collector.ExportTraceServiceResponse{}, nil
}

// Text returns everything that the collector received.
func (o *Collector) Text() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}
