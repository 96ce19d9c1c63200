// Package tracing tells an OpenTelemetry collector what the agent does: a span for each pass over a pod and for each of its steps, and below them one for each call to the
// container runtime, which goes on with the trace; and one for each request to the API server, and for each that the kubelet's API serves.
//
// Purpose: KubeletConfiguration.tracing. The names of passes are the kubelet's (syncPod, syncTerminatingPod, syncTerminatedPod), with its attributes; the steps' are those of
// "berth why". Spans hold names and errors, nothing that pods say or are given.
//
// Truth owned: none. Without configuration nothing is made: no connection, no goroutine, no span; a nil [Tracing] is one that is off.
//
// Concurrency: everything is safe for concurrent use. [Tracing.Close] joins what [New] started.
package tracing

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc"
	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/sdk/resource"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"
	v1 "k8s.io/api/core/v1"
	"k8s.io/component-base/tracing"
	tracingapi "k8s.io/component-base/tracing/api/v1"
)

const (
	// service is what the spans' resource is called: the kubelet's, for whoever looks for a node's.
	service = "kubelet"
	// sendTimeout is how long one sending of spans may take with its retries, closeTimeout that of the last ones.
	sendTimeout  = 2 * time.Second
	closeTimeout = sendTimeout + time.Second
	// complainEvery is how often it is told that spans cannot be sent.
	complainEvery = 10 * time.Minute
)

// Tracing sends spans. Make it with [New]; nil is off.
type Tracing struct {
	provider tracing.TracerProvider
	tracer   trace.Tracer
}

// New returns what sends spans to the config's collector, which need not be there; nil where the config has none. node is the node's name.
func New(ctx context.Context, cfg *tracingapi.TracingConfiguration, node string, log *slog.Logger) (*Tracing, error) {
	if cfg == nil {
		return nil, nil
	}
	of := resource.WithAttributes(attribute.String("service.name", service), attribute.String("host.name", node))
	provider, err := tracing.NewProvider(ctx, cfg, []otlptracegrpc.Option{
		otlptracegrpc.WithTimeout(sendTimeout),
		otlptracegrpc.WithDialOption(grpc.WithDisableServiceConfig()), // which is asked of DNS, also for localhost
		otlptracegrpc.WithRetry(otlptracegrpc.RetryConfig{Enabled: true, InitialInterval: sendTimeout / 10, MaxInterval: sendTimeout / 2, MaxElapsedTime: sendTimeout}),
	}, []resource.Option{of})
	if err != nil {
		return nil, fmt.Errorf("tracing: %w", err)
	}
	otel.SetErrorHandler(&complaints{log: log}) // the library has one for the process
	return &Tracing{provider: provider, tracer: provider.Tracer("github.com/berthd/berth/agent")}, nil
}

// Close sends what is left, for at most three seconds, and ends the connection.
func (t *Tracing) Close(ctx context.Context) error {
	if t == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	return t.provider.Shutdown(ctx)
}

// DialOptions are those by which calls to the runtime get spans.
func (t *Tracing) DialOptions() []grpc.DialOption {
	if t == nil {
		return nil
	}
	return []grpc.DialOption{grpc.WithStatsHandler(otelgrpc.NewClientHandler(
		otelgrpc.WithTracerProvider(quiet{t.provider}), otelgrpc.WithPropagators(tracing.Propagators()),
	))}
}

// Transport gives requests of a client of the API server spans, "HTTP GET" and so on, and tells the API server of them so that its own are of the same trace.
func (t *Tracing) Transport(next http.RoundTripper) http.RoundTripper {
	if t == nil {
		return next
	}
	return tracing.WrapperFor(quiet{t.provider})(next)
}

// names are what a kubelet calls the parts of paths.
var names = strings.NewReplacer("{namespace}", "{podNamespace}", "{pod}", "{podID}", "{container}", "{containerName}")

// Handler gives each request that is served a span, which is named by the request's route. Anybody may send one, so that a trace of the sender's is not gone on with, only
// referred to.
func (t *Tracing) Handler(route func(*http.Request) string, next http.Handler) http.Handler {
	if t == nil {
		return next
	}
	return otelhttp.NewHandler(next, "", otelhttp.WithTracerProvider(quiet{t.provider}), otelhttp.WithPropagators(tracing.Propagators()),
		otelhttp.WithPublicEndpointFn(func(*http.Request) bool { return true }),
		otelhttp.WithSpanNameFormatter(func(_ string, r *http.Request) string { return names.Replace(route(r)) }))
}

// Pass begins the span of a pass over a pod, by the pass's name as the kubelet has it; end ends it, with the pass's error.
func (t *Tracing) Pass(ctx context.Context, name, updateType string, pod *v1.Pod) (inside context.Context, end func(error)) {
	if t == nil {
		return ctx, func(error) {}
	}
	return t.start(ctx, name,
		attribute.String("k8s.pod.uid", string(pod.UID)), attribute.String("k8s.pod", pod.Namespace+"/"+pod.Name), attribute.String("k8s.pod.name", pod.Name),
		attribute.String("k8s.pod.update_type", updateType), attribute.String("k8s.namespace.name", pod.Namespace))
}

// Step begins the span of a step of a pass; end ends it, with the step's error.
func (t *Tracing) Step(ctx context.Context, name string) (inside context.Context, end func(error)) {
	if t == nil {
		return ctx, func(error) {}
	}
	return t.start(ctx, name)
}

func (t *Tracing) start(ctx context.Context, name string, attributes ...attribute.KeyValue) (context.Context, func(error)) {
	ctx, span := t.tracer.Start(ctx, name, trace.WithAttributes(attributes...))
	return ctx, func(err error) {
		if err != nil {
			span.RecordError(err)
			span.SetStatus(codes.Error, err.Error())
		}
		span.End()
	}
}

// complaints tells that spans cannot be sent, from time to time.
type complaints struct {
	log *slog.Logger

	mu   sync.Mutex
	last time.Time
}

// Handle tells of an error of the library.
func (c *complaints) Handle(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.last.IsZero() && time.Since(c.last) < complainEvery {
		return
	}
	c.last = time.Now()
	c.log.Warn("traces not sent", "err", err)
}
