package tracing

import (
	"context"

	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
)

// quiet makes spans that say whether something failed, but not the error's text: a registry's text,
// which comes through the runtime, may repeat a password that was sent to it. The span of the step
// has the agent's own text, without such words.
type quiet struct{ trace.TracerProvider }

// Tracer returns a tracer that makes quiet spans.
func (q quiet) Tracer(name string, options ...trace.TracerOption) trace.Tracer {
	return quietTracer{q.TracerProvider.Tracer(name, options...)}
}

type quietTracer struct{ trace.Tracer }

// Start begins a quiet span and puts it into the context.
func (q quietTracer) Start(
	ctx context.Context, name string, options ...trace.SpanStartOption,
) (context.Context, trace.Span) {
	ctx, span := q.Tracer.Start(ctx, name, options...)
	span = quietSpan{span}
	return trace.ContextWithSpan(ctx, span), span
}

type quietSpan struct{ trace.Span }

// SetStatus drops the description.
func (q quietSpan) SetStatus(code codes.Code, _ string) { q.Span.SetStatus(code, "") }

// RecordError records that there was an error, without its text.
func (q quietSpan) RecordError(error, ...trace.EventOption) { q.Span.SetStatus(codes.Error, "") }
