package tracing_test

import (
	"context"
	"testing"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/tracing"
)

// discard is an exporter.
type discard struct{}

func (discard) ExportSpans(context.Context, []sdktrace.ReadOnlySpan) error { return nil }
func (discard) Shutdown(context.Context) error                             { return nil }

// BenchmarkSpans measures the spans of one task: its enqueue and one attempt.
func BenchmarkSpans(b *testing.B) {
	for name, sampler := range map[string]sdktrace.Sampler{"recorded": sdktrace.AlwaysSample(), "dropped": sdktrace.NeverSample()} {
		provider := sdktrace.NewTracerProvider(sdktrace.WithIDGenerator(tracing.IDGenerator()), sdktrace.WithSampler(sampler), sdktrace.WithBatcher(discard{}))
		tracer := tracing.New(provider)
		outcome := &holdfast.Transition{Event: holdfast.EventComplete}
		one := []holdfast.NewTask{{Type: "mail", Queue: "slow"}}
		b.Run(name+"/enqueue", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				one[0].Trace = ""
				tracer.Enqueue(b.Context(), one)(7, nil)
			}
		})
		claimed := task(one[0].Trace, 1)
		b.Run(name+"/attempt", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_, span := tracer.Attempt(b.Context(), claimed)
				span.End(outcome)
			}
		})
		claimed = task(one[0].Trace, 2)
		b.Run(name+"/retry", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_, span := tracer.Attempt(b.Context(), claimed)
				span.End(outcome)
			}
		})
		if err := provider.Shutdown(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}
