package tracing

import (
	"context"

	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
)

// quiet gives spans that tell whether something failed and not in which words: a registry's, which come through the runtime, may say back a password that it was sent. What the
// agent makes of an error, without that, is told by the span of the step.
type quiet struct{ trace.TracerProvider }

// Tracer returns a tracer of quiet spans.
func (q quiet) Tracer(name string, options ...trace.TracerOption) trace.Tracer {
	return quietTracer{q.TracerProvider.Tracer(name, options...)}
}

type quietTracer struct{ trace.Tracer }

// Start begins a quiet span, which is also the context's.
func (q quietTracer) Start(ctx context.Context, name string, options ...trace.SpanStartOption) (context.Context, trace.Span) {
	ctx, span := q.Tracer.Start(ctx, name, options...)
	span = quietSpan{span}
	return trace.ContextWithSpan(ctx, span), span
}

type quietSpan struct{ trace.Span }

// SetStatus drops the words.
func (q quietSpan) SetStatus(code codes.Code, _ string) { q.Span.SetStatus(code, "") }

// RecordError tells that there was one.
func (q quietSpan) RecordError(error, ...trace.EventOption) { q.Span.SetStatus(codes.Error, "") }
