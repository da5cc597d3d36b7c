package tracing_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/queue"
	"github.com/holdfastq/holdfast/tracing"
)

type welcome struct{ To string }

func Example() {
	ctx, stop := context.WithCancel(context.Background())
	dir, err := os.MkdirTemp("", "holdfast")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)

	spans := tracetest.NewInMemoryExporter() // a program uses an exporter such as otlptracehttp, with WithBatcher
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans), sdktrace.WithIDGenerator(tracing.IDGenerator()))
	q, err := queue.Open(ctx, queue.File(filepath.Join(dir, "tasks.db")), queue.Tracer(tracing.New(provider)))
	if err != nil {
		panic(err)
	}
	_ = queue.Handle(q, "welcome", func(_ context.Context, _ holdfast.Task, _ welcome) error {
		// The context is that of the span of the attempt, so an instrumented client continues the trace.
		stop()
		return nil
	})
	if _, err := q.Enqueue(ctx, "welcome", welcome{"ada@example.com"}); err != nil {
		panic(err)
	}
	if err := q.Run(ctx); err != nil {
		panic(err)
	}
	if err := q.Close(); err != nil {
		panic(err)
	}
	var names []string
	for _, span := range spans.GetSpans() {
		names = append(names, span.Name)
	}
	slices.Sort(names)
	fmt.Println(names)
	_ = provider.Shutdown(context.Background())
	// Output: [process default send default]
}
