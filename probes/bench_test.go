package probes

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"google.golang.org/grpc"
	grpchealth "google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// The benchmarks measure the agent's part of a probe. For HTTP and gRPC the server's part runs in
// the same process. At one probe a second in each of 100 pods, 500 µs per probe are 5 % of a core.

func BenchmarkExec(b *testing.B) {
	p := New(Config{},
		Deps{Exec: func(context.Context, string, []string, time.Duration) (int, []byte, error) {
			return 0, nil, nil
		}}).prober
	t := task{
		container:   &v1.Container{},
		containerID: "id",
		spec:        &v1.Probe{ProbeHandler: v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{"cat", "/tmp/x"}}}},
	}
	benchmark(b, p, t)
}

func BenchmarkHTTP(b *testing.B) {
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer server.Close()
	t := httpTask(0, v1.HTTPGetAction{Path: "/healthz"})
	t.spec.HTTPGet.Port = intstr.FromString(server.URL[len("http://127.0.0.1:"):])
	benchmark(b, testProber(Config{}), t)
}

func BenchmarkGRPC(b *testing.B) {
	port := serveGRPC(b, func(s *grpc.Server) { healthv1.RegisterHealthServer(s, grpchealth.NewServer()) })
	benchmark(b, testProber(Config{}), grpcTask(port, nil))
}

func benchmark(b *testing.B, p *prober, t task) {
	b.ReportAllocs()
	for b.Loop() {
		if got, err := p.run(b.Context(), t); err != nil || got.outcome != success {
			b.Fatal(got, err)
		}
	}
}

// BenchmarkSync measures a Sync without changes for a pod with three probes.
func BenchmarkSync(b *testing.B) {
	m := New(Config{}, Deps{OnChange: func(types.UID) {}})
	pod := podOf(v1.Container{
		LivenessProbe:  execProbe("a", 10, 3),
		ReadinessProbe: execProbe("a", 10, 3),
		StartupProbe:   execProbe("a", 10, 3),
	})
	targets := []Target{{Name: "c", ContainerID: "id"}}
	b.ReportAllocs()
	for b.Loop() {
		m.Sync(pod, "10.0.0.1", targets)
	}
}
