package tracing

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	spans "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	grpccodes "google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	tracingapi "k8s.io/component-base/tracing/api/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/ptr"

	"github.com/berthd/berth/test/leaks"
)

func TestMain(m *testing.M) { os.Exit(leaks.Run(m)) }

// sink is a collector in this process.
type sink struct {
	collector.UnimplementedTraceServiceServer
	mu    sync.Mutex
	spans []*spans.Span
	names []string // of the resources
}

func (s *sink) Export(
	_ context.Context, r *collector.ExportTraceServiceRequest,
) (*collector.ExportTraceServiceResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, of := range r.GetResourceSpans() {
		for _, a := range of.GetResource().GetAttributes() {
			s.names = append(s.names, a.GetKey()+"="+a.GetValue().GetStringValue())
		}
		for _, in := range of.GetScopeSpans() {
			s.spans = append(s.spans, in.GetSpans()...)
		}
	}
	return &collector.ExportTraceServiceResponse{}, nil
}

// find returns the span of that name.
func (s *sink) find(t *testing.T, name string) *spans.Span {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, span := range s.spans {
		if span.GetName() == name {
			return span
		}
	}
	t.Fatalf("no span %s", name)
	return nil
}

// serve serves gRPC until the test ends, and returns the address.
func serve(t *testing.T, register func(*grpc.Server)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	register(server)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(l)
	}()
	t.Cleanup(func() {
		server.Stop()
		<-done
	})
	return l.Addr().String()
}

// runtime is a container runtime that only answers with its version.
type runtime struct {
	runtimeapi.UnimplementedRuntimeServiceServer
}

func (runtime) Version(context.Context, *runtimeapi.VersionRequest) (*runtimeapi.VersionResponse, error) {
	return &runtimeapi.VersionResponse{RuntimeName: "fake"}, nil
}

// ListContainers fails with a text that nobody else may read.
func (runtime) ListContainers(
	context.Context, *runtimeapi.ListContainersRequest,
) (*runtimeapi.ListContainersResponse, error) {
	return nil, status.Error(grpccodes.PermissionDenied, "denied: hunter2")
}

// A sync, its step and the step's call to the runtime are one trace, with the kubelet's names and
// attributes.
func TestSpans(t *testing.T) {
	s := &sink{}
	endpoint := serve(t, func(server *grpc.Server) { collector.RegisterTraceServiceServer(server, s) })
	cri := serve(t, func(server *grpc.Server) { runtimeapi.RegisterRuntimeServiceServer(server, runtime{}) })
	tr, err := New(t.Context(),
		&tracingapi.TracingConfiguration{Endpoint: &endpoint, SamplingRatePerMillion: ptr.To[int32](1000000)}, "node-a",
		slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	conn, err := grpc.NewClient(cri,
		append(tr.DialOptions(), grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "p", UID: "u"}}
	ctx, endSync := tr.Sync(t.Context(), "syncPod", "sync", pod)
	inside, endStep := tr.Step(ctx, "sandbox")
	if _, err := runtimeapi.NewRuntimeServiceClient(conn).Version(inside, &runtimeapi.VersionRequest{}); err != nil {
		t.Fatal(err)
	}
	if _, err := runtimeapi.NewRuntimeServiceClient(conn).ListContainers(inside,
		&runtimeapi.ListContainersRequest{}); status.Code(err) != grpccodes.PermissionDenied {
		t.Fatal(err)
	}
	endStep(errors.New("no network"))
	endSync(nil)
	if err := tr.Close(t.Context()); err != nil {
		t.Fatal(err)
	}

	sync, step, call := s.find(t, "syncPod"), s.find(t, "sandbox"), s.find(t, "runtime.v1.RuntimeService/Version")
	if string(step.GetParentSpanId()) != string(sync.GetSpanId()) ||
		string(call.GetParentSpanId()) != string(step.GetSpanId()) || len(sync.GetParentSpanId()) > 0 {
		t.Errorf("they are not within each other: %v %v %v", sync, step, call)
	}
	if step.GetStatus().GetCode() != spans.Status_STATUS_CODE_ERROR || step.GetStatus().GetMessage() != "no network" ||
		sync.GetStatus().GetCode() == spans.Status_STATUS_CODE_ERROR {
		t.Errorf("their ends are %v and %v", step.GetStatus(), sync.GetStatus())
	}
	if failed := s.find(t,
		"runtime.v1.RuntimeService/ListContainers"); failed.GetStatus().GetCode() != spans.Status_STATUS_CODE_ERROR ||
		strings.Contains(failed.String(), "hunter2") {
		t.Errorf("a call that failed: %v", failed)
	}
	var attributes []string
	for _, a := range sync.GetAttributes() {
		attributes = append(attributes, a.GetKey()+"="+a.GetValue().GetStringValue())
	}
	slices.Sort(attributes)
	if want := "k8s.namespace.name=n k8s.pod.name=p k8s.pod.uid=u k8s.pod.update_type=sync k8s.pod=n/p"; strings.Join(
		attributes, " ") != want {
		t.Errorf("the attributes are %v", attributes)
	}
	if !slices.Contains(s.names, "service.name=kubelet") || !slices.Contains(s.names, "host.name=node-a") {
		t.Errorf("they come from %v", s.names)
	}
}

// Requests have spans on both sides. The client's have the client's names; the server's have the
// route's name, continue no trace, and have nothing of the request's content.
func TestSpansOfRequests(t *testing.T) {
	s := &sink{}
	endpoint := serve(t, func(server *grpc.Server) { collector.RegisterTraceServiceServer(server, s) })
	tr, err := New(t.Context(),
		&tracingapi.TracingConfiguration{Endpoint: &endpoint, SamplingRatePerMillion: ptr.To[int32](1000000)}, "node-a",
		slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	route := func(*http.Request) string { return "/exec/{namespace}/{pod}/{container}" }
	server := httptest.NewServer(tr.Handler(route,
		http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "no", http.StatusInternalServerError)
		})))
	defer server.Close()
	base := &http.Transport{}
	defer base.CloseIdleConnections()
	ctx, end := tr.Sync(t.Context(), "syncPod", "sync", &v1.Pod{})
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, server.URL+"/exec/ns/p/c?command=hunter2", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := (&http.Client{Transport: tr.Transport(base)}).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
	end(nil)
	server.Close() // so that the handler has returned
	if err := tr.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	sync, asked, served := s.find(t, "syncPod"), s.find(t, "HTTP POST"),
		s.find(t, "/exec/{podNamespace}/{podID}/{containerName}")
	if string(asked.GetParentSpanId()) != string(sync.GetSpanId()) {
		t.Errorf("the request is not within the sync: %v", asked)
	}
	if string(served.GetTraceId()) == string(asked.GetTraceId()) || len(served.GetParentSpanId()) > 0 ||
		len(served.GetLinks()) != 1 ||
		string(served.GetLinks()[0].GetSpanId()) != string(asked.GetSpanId()) ||
		served.GetKind() != spans.Span_SPAN_KIND_SERVER {
		t.Errorf("served: %v", served)
	}
	if served.GetStatus().GetCode() != spans.Status_STATUS_CODE_ERROR || strings.Contains(served.String(), "hunter2") {
		t.Errorf("served: %v", served)
	}
}

// Without a rate nothing is sampled, and without a config there is nothing at all.
func TestOff(t *testing.T) {
	s := &sink{}
	endpoint := serve(t, func(server *grpc.Server) { collector.RegisterTraceServiceServer(server, s) })
	unsampled, err := New(t.Context(), &tracingapi.TracingConfiguration{Endpoint: &endpoint}, "node-a",
		slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	off, err := New(t.Context(), nil, "node-a", nil)
	if err != nil || off != nil || len(off.DialOptions()) != 0 {
		t.Fatalf("no config: %v %v", off, err)
	}
	for _, tr := range []*Tracing{unsampled, off} {
		ctx, end := tr.Sync(t.Context(), "syncPod", "sync", &v1.Pod{})
		_, endStep := tr.Step(ctx, "sandbox")
		endStep(errors.New("no network"))
		end(nil)
		if err := tr.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if len(s.spans) > 0 {
		t.Errorf("spans were sent: %v", s.spans)
	}
	if base := http.DefaultTransport; off.Transport(base) != base {
		t.Error("a client that nobody traces has a wrapped transport")
	}
	if allocs := testing.AllocsPerRun(100, func() {
		ctx, end := off.Sync(context.Background(), "syncPod", "sync", nil)
		_, endStep := off.Step(ctx, "sandbox")
		endStep(nil)
		end(nil)
	}); allocs > 0 {
		t.Errorf("a sync that nobody traces allocates %v times", allocs)
	}
}

// A collector that does not answer delays nobody, and one log line says so.
func TestCollectorAway(t *testing.T) {
	var log strings.Builder
	var mu sync.Mutex
	logger := slog.New(slog.NewTextHandler(writer(func(p []byte) {
		mu.Lock()
		defer mu.Unlock()
		log.Write(p)
	}), nil))
	tr, err := New(t.Context(),
		&tracingapi.TracingConfiguration{
			Endpoint: ptr.To("127.0.0.1:1"), SamplingRatePerMillion: ptr.To[int32](1000000),
		}, "node-a", logger)
	if err != nil {
		t.Fatal(err)
	}
	_, end := tr.Sync(t.Context(), "syncPod", "sync", &v1.Pod{})
	end(nil)
	_ = tr.Close(t.Context())
	c := &sendErrors{log: logger}
	c.Handle(errors.New("one"))
	c.Handle(errors.New("two"))
	mu.Lock()
	defer mu.Unlock()
	if text := log.String(); strings.Count(text, "err=one") != 1 || strings.Contains(text, "two") {
		t.Errorf("the log is %s", text)
	}
}

type writer func(p []byte)

func (w writer) Write(p []byte) (int, error) {
	w(p)
	return len(p), nil
}
