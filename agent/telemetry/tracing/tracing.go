// Package tracing sends spans about the agent's work to an OpenTelemetry collector. There is a span
// for each sync of a pod, for each of its steps, and for each call to the container runtime, which
// continues the trace. There is also one for each request to the API server, and for each request
// that the kubelet's API serves.
//
// Purpose: KubeletConfiguration.tracing. Spans of syncs have the kubelet's names (syncPod,
// syncTerminatingPod, syncTerminatedPod) and attributes; spans of steps have the names that "berth
// why" shows. Spans hold names and errors, and nothing of a pod's content.
//
// Truth owned: none. Without configuration nothing is made: no connection, no goroutine, no span. A
// nil [Tracing] is off.
//
// Concurrency: everything is safe for concurrent use. [Tracing.Close] joins the goroutines that
// [New] started.
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

	"github.com/berthd/berth/internal/pods"
)

const (
	// service is the service name of the spans. It is the kubelet's, for those who search for a
	// node's spans.
	service = "kubelet"
	// sendTimeout is how long it may take to send spans, with retries; closeTimeout is for the last
	// spans.
	sendTimeout  = 2 * time.Second
	closeTimeout = sendTimeout + time.Second
	// warnEvery is how often a log line warns that spans cannot be sent.
	warnEvery = 10 * time.Minute
)

// Tracing sends spans. Make it with [New]; nil is off.
type Tracing struct {
	provider tracing.TracerProvider
	tracer   trace.Tracer
}

// New returns a Tracing that sends spans to the collector in the config; the collector need not run
// yet. New returns nil if the config is nil. node is the node's name.
func New(ctx context.Context, cfg *tracingapi.TracingConfiguration, node string, log *slog.Logger) (*Tracing, error) {
	if cfg == nil {
		return nil, nil
	}
	of := resource.WithAttributes(attribute.String("service.name", service), attribute.String("host.name", node))
	provider, err := tracing.NewProvider(ctx, cfg, []otlptracegrpc.Option{
		otlptracegrpc.WithTimeout(sendTimeout),
		// the service config would be looked up in DNS, also for localhost
		otlptracegrpc.WithDialOption(grpc.WithDisableServiceConfig()),
		otlptracegrpc.WithRetry(otlptracegrpc.RetryConfig{
			Enabled:         true,
			InitialInterval: sendTimeout / 10,
			MaxInterval:     sendTimeout / 2,
			MaxElapsedTime:  sendTimeout,
		}),
	}, []resource.Option{of})
	if err != nil {
		return nil, fmt.Errorf("tracing: %w", err)
	}
	otel.SetErrorHandler(&sendErrors{log: log}) // the library has one handler for the whole process
	return &Tracing{provider: provider, tracer: provider.Tracer("github.com/berthd/berth/agent")}, nil
}

// Close sends the last spans, for at most three seconds, and closes the connection.
func (t *Tracing) Close(ctx context.Context) error {
	if t == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	return t.provider.Shutdown(ctx)
}

// DialOptions returns the options that give calls to the runtime a span.
func (t *Tracing) DialOptions() []grpc.DialOption {
	if t == nil {
		return nil
	}
	return []grpc.DialOption{grpc.WithStatsHandler(otelgrpc.NewClientHandler(
		otelgrpc.WithTracerProvider(quiet{t.provider}), otelgrpc.WithPropagators(tracing.Propagators()),
	))}
}

// Transport gives the requests of a client of the API server a span, such as "HTTP GET". It also
// sends the trace's id to the API server, so that the API server's spans belong to the same trace.
func (t *Tracing) Transport(next http.RoundTripper) http.RoundTripper {
	if t == nil {
		return next
	}
	return tracing.WrapperFor(quiet{t.provider})(next)
}

// names has the kubelet's names of the parts of paths.
var names = strings.NewReplacer("{namespace}", "{podNamespace}", "{pod}", "{podID}", "{container}", "{containerName}")

// Handler gives each served request a span with the name of the request's route. Anybody may send a
// request, so the span does not continue the sender's trace; it only links to it.
func (t *Tracing) Handler(route func(*http.Request) string, next http.Handler) http.Handler {
	if t == nil {
		return next
	}
	return otelhttp.NewHandler(next, "", otelhttp.WithTracerProvider(quiet{t.provider}),
		otelhttp.WithPropagators(tracing.Propagators()),
		otelhttp.WithPublicEndpointFn(func(*http.Request) bool { return true }),
		otelhttp.WithSpanNameFormatter(func(_ string, r *http.Request) string { return names.Replace(route(r)) }))
}

// Sync begins the span of a sync of a pod; name is the kubelet's name of the sync. end ends the
// span with the sync's error.
func (t *Tracing) Sync(
	ctx context.Context, name, updateType string, pod *v1.Pod,
) (inside context.Context, end func(error)) {
	if t == nil {
		return ctx, func(error) {}
	}
	return t.start(ctx, name,
		attribute.String("k8s.pod.uid", string(pod.UID)), attribute.String("k8s.pod", pods.FullName(pod)),
		attribute.String("k8s.pod.name", pod.Name),
		attribute.String("k8s.pod.update_type", updateType), attribute.String("k8s.namespace.name", pod.Namespace))
}

// Step begins the span of a step of a sync; end ends the span with the step's error.
func (t *Tracing) Step(ctx context.Context, name string) (inside context.Context, end func(error)) {
	if t == nil {
		return ctx, func(error) {}
	}
	return t.start(ctx, name)
}

func (t *Tracing) start(
	ctx context.Context, name string, attributes ...attribute.KeyValue,
) (context.Context, func(error)) {
	ctx, span := t.tracer.Start(ctx, name, trace.WithAttributes(attributes...))
	return ctx, func(err error) {
		if err != nil {
			span.RecordError(err)
			span.SetStatus(codes.Error, err.Error())
		}
		span.End()
	}
}

// sendErrors logs, from time to time, that spans cannot be sent.
type sendErrors struct {
	log *slog.Logger

	mu   sync.Mutex
	last time.Time
}

// Handle logs an error of the library.
func (c *sendErrors) Handle(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.last.IsZero() && time.Since(c.last) < warnEvery {
		return
	}
	c.last = time.Now()
	c.log.Warn("traces not sent", "err", err)
}
